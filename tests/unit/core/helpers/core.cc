/*
 * What several unit tests of core need.
 */
#include "tests/unit/core/helpers/core.h"

#include "tests/unit/core/helpers/folder.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define OTHER_MALLOC
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OTHER_MALLOC
#endif

static thread_local bool malloc_forbidden;

void forbid_malloc(bool forbidden)
{
    malloc_forbidden = forbidden;
}

#if !defined(OTHER_MALLOC)
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static void check_allowed()
{
    static const char message[] = "malloc in a place that must not allocate\n";
    if (!malloc_forbidden)
        return;
    if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0) {
        /* The status tells it as well. */
    }
    _exit(99);
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    check_allowed();
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    check_allowed();
    return __libc_calloc(count, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t bytes)
{
    check_allowed();
    return __libc_realloc(memory, bytes);
}
}
#endif

std::vector<std::string> Folder::names() const
{
    std::vector<std::string> found;
    DIR *folder = opendir(path_.c_str());
    if (!folder)
        return found;
    while (struct dirent *entry = readdir(folder))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            found.push_back(entry->d_name);
    closedir(folder);
    std::sort(found.begin(), found.end());
    return found;
}

void Folder::remove_tree(const std::string &path)
{
    struct stat status;
    if (lstat(path.c_str(), &status) != 0)
        return;
    if (S_ISDIR(status.st_mode)) {
        std::vector<std::string> names;
        if (DIR *folder = opendir(path.c_str())) {
            while (struct dirent *entry = readdir(folder))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                    names.push_back(entry->d_name);
            closedir(folder);
        }
        for (const std::string &name : names)
            remove_tree(path + "/" + name);
        rmdir(path.c_str());
    } else {
        unlink(path.c_str());
    }
}

std::string read_whole_file(const std::string &path)
{
    std::string content;
    char part[4096];
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return "<cannot open " + path + ">";
    for (ssize_t got; (got = read(fd, part, sizeof(part))) > 0;)
        content.append(part, (size_t)got);
    close(fd);
    return content;
}

void write_whole_file(const std::string &path, const std::string &content)
{
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0) << path;
    ASSERT_EQ(write(fd, content.data(), content.size()), (ssize_t)content.size());
    close(fd);
}

std::string test_folder()
{
    return ng_test_folder;
}

void expect_golden(const std::string &text, const std::string &name)
{
    std::string path = test_folder() + "/golden/" + name;
    if (getenv("NG_TEST_UPDATE"))
        write_whole_file(path, text);
    EXPECT_EQ(text, read_whole_file(path)) << name;
}

std::string text_from(const std::function<void(int fd)> &write)
{
    Folder folder;
    std::string path = folder / "out";
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    write(fd);
    close(fd);
    return read_whole_file(path);
}

int in_child(const std::function<int()> &body)
{
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(body());
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}
