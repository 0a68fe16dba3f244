/* expr_lex.h: the tokens of the variant language.

   Who includes it: expr_lex.c, expr_parse.c. */
#ifndef ATTN_EXPR_LEX_H
#define ATTN_EXPR_LEX_H

#include "expr.h"

typedef struct attn__token {
    const char *at;
    size_t length;
    char kind; /* 'n' name, '0' number, 'p' punctuation, 'e' end */
} attn__token;

typedef struct attn__lexer {
    const char *text, *at; /* at: after `now` */
    attn__token now;
} attn__lexer;

int attn__next(attn__lexer *lex); /* moves `now` on */
int attn__is(const attn__lexer *lex, const char *word);
/* ATTN_PARSE, with line and column of `at`. */
int attn__fail_at(const attn__lexer *lex, const char *at, const char *what);
/* The same: "expected `wanted`, found ...". */
int attn__fail_expected(const attn__lexer *lex, const char *wanted);
int attn__expect(attn__lexer *lex, const char *punctuation);  /* and moves on */
int attn__take_name(attn__lexer *lex, char name[ATTN__NAME]); /* and moves on */
/* 1 and *x for a number token without fraction or exponent that fits i32. */
int attn__token_i32(const attn__token *t, int negative, int32_t *x);

#endif
