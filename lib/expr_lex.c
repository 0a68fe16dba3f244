/* expr_lex.c: text to tokens.

   Who calls it: expr_parse.c. Blanks, line ends and comments (# to the end of the line) separate
   tokens; any other byte outside the language is refused by its number. */
#include "expr_lex.h"

#include <stdio.h>
#include <string.h>

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}
static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

int attn__fail_at(const attn__lexer *lex, const char *at, const char *what) {
    int line = 1;
    const char *begin = lex->text;
    for (const char *c = lex->text; c < at; c++) {
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    }
    return attn__fail(ATTN_PARSE, "text", "line %d, column %d of the variant: %s", line,
                      (int)(at - begin) + 1, what);
}

int attn__fail_expected(const attn__lexer *lex, const char *wanted) {
    char what[160];
    const int length = lex->now.length < 40 ? (int)lex->now.length : 40;
    if (lex->now.kind == 'e') {
        snprintf(what, sizeof what, "expected %s, but the text ends", wanted);
    } else {
        snprintf(what, sizeof what, "expected %s, found '%.*s'", wanted, length, lex->now.at);
    }
    return attn__fail_at(lex, lex->now.at, what);
}

/* The length of a number's text: digits [. digits] [e [+-] digits]; "0..3" is 0 and then dots. */
static size_t number_length(const char *at) {
    const char *c = at;
    while (is_digit(*c)) {
        c++;
    }
    if (*c == '.' && c[1] != '.') {
        c++;
        while (is_digit(*c)) {
            c++;
        }
    }
    if ((*c == 'e' || *c == 'E') && is_digit(c[1] == '+' || c[1] == '-' ? c[2] : c[1])) {
        c += 2;
        while (is_digit(*c)) {
            c++;
        }
    }
    return (size_t)(c - at);
}

int attn__next(attn__lexer *lex) {
    static const char *const pairs[] = {"||", "&&", "==", "!=", "<=", ">=", ".."};
    const char *c = lex->at;
    while (*c == ' ' || *c == '\t' || *c == '\n' || *c == '\r' || *c == '#') {
        if (*c == '#') {
            c += strcspn(c, "\n");
        } else {
            c++;
        }
    }
    attn__token t = {c, 1, 'p'};
    if (!*c) {
        t = (attn__token){c, 0, 'e'};
    } else if (is_letter(*c)) {
        t.kind = 'n';
        while (is_letter(c[t.length]) || is_digit(c[t.length])) {
            t.length++;
        }
    } else if (is_digit(*c) || (*c == '.' && is_digit(c[1]))) {
        t = (attn__token){c, number_length(c), '0'};
        if (is_letter(c[t.length])) {
            return attn__fail_at(lex, c, "a number is followed by a letter");
        }
    } else {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            if (c[0] == pairs[i][0] && c[1] == pairs[i][1]) {
                t.length = 2;
            }
        }
        if (t.length == 1 && !strchr("()[]?:;,<>=!+-*/%", *c)) {
            char what[64];
            snprintf(what, sizeof what, "unexpected byte 0x%02x", (unsigned char)*c);
            return attn__fail_at(lex, c, what);
        }
    }
    lex->now = t;
    lex->at = c + t.length;
    return ATTN_OK;
}

int attn__is(const attn__lexer *lex, const char *word) {
    return lex->now.kind != 'e' && lex->now.length == strlen(word) &&
           !memcmp(lex->now.at, word, lex->now.length);
}

int attn__expect(attn__lexer *lex, const char *punctuation) {
    if (!attn__is(lex, punctuation)) {
        char wanted[16];
        snprintf(wanted, sizeof wanted, "'%s'", punctuation);
        return attn__fail_expected(lex, wanted);
    }
    return attn__next(lex);
}

int attn__take_name(attn__lexer *lex, char name[ATTN__NAME]) {
    if (lex->now.kind != 'n') {
        return attn__fail_expected(lex, "a name");
    }
    if (lex->now.length >= ATTN__NAME) {
        return attn__fail_at(lex, lex->now.at, "this name is longer than 47 letters");
    }
    memcpy(name, lex->now.at, lex->now.length);
    name[lex->now.length] = 0;
    return attn__next(lex);
}

int attn__token_i32(const attn__token *t, int negative, int32_t *x) {
    int64_t value = 0;
    for (size_t i = 0; i < t->length; i++) {
        if (!is_digit(t->at[i])) {
            return 0;
        }
        value = 10 * value + (t->at[i] - '0');
        if (value > INT64_C(1) << 31) {
            return 0;
        }
    }
    value = negative ? -value : value;
    *x = (int32_t)value;
    return value <= INT32_MAX;
}
