/*
 * One of two forms, by the first character.
 *
 * Pure.
 */
#include "store/ras/ras_answer.h"

#include <errno.h>

#include "store/ras/ras_parts.h"

int ng_ras_answer_read(const char *text, size_t bytes, struct ng_ras_answer *ret_answer)
{
    struct ng_ras_answer answer = {0};
    struct ng_ras_input input = {text, text + bytes};

    while (input.at < input.end && (*input.at == ' ' || *input.at == '\n'))
        input.at++;
    if (input.at == input.end)
        return -EBADMSG;
    int error =
        *input.at == '{' ? ng_ras_json_read(input, &answer) : ng_ras_text_read(input, &answer);
    if (error) {
        ng_arena_reset(&answer.arena);
        return error;
    }
    *ret_answer = answer;
    return 0;
}
