"""Compiler options of the project's own files, the same for gcc and clang."""

WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# The library is optimised in every mode: tests of it would take minutes without.
C = ["-std=c11", "-O2", "-fvisibility=hidden"] + WARNINGS

# Tests are C++17, and read the internal headers from lib/.
TEST = ["-std=c++17", "-Ilib", "-Itests"] + WARNINGS
