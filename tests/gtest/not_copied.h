/* For what ends with its scope. */
#ifndef NCCLGUARD_TESTS_NOT_COPIED_H
#define NCCLGUARD_TESTS_NOT_COPIED_H

struct NotCopied {
    NotCopied() = default;
    NotCopied(const NotCopied &) = delete;
    NotCopied &operator=(const NotCopied &) = delete;
};

#endif
