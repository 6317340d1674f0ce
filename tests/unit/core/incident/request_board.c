/* The guard's board, for tests in C++, which cannot see struct ng_guard. */
#include "core/runtime/runtime.h"

void test_request_set_board(struct ng_board *board);

void test_request_set_board(struct ng_board *board)
{
    ng_guard.board = board;
}
