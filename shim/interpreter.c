/*
 * The CPython of this process: the layout of its objects.
 *
 * Entered by the thread that creates the first communicator, and briefly by the interpreter's first
 * thread, with its lock. Must be invisible to the program: it adds no module and raises no
 * exception.
 *
 * CPython promises no layout between releases, but keeps it within one from its first release
 * candidate on. 3.13 and later publish it in _PyRuntime, for debuggers; for 3.11 and 3.12 it is
 * written here, from their headers. 3.10 and earlier have frames of another kind, and releases
 * after 3.15 are not known yet; free-threaded builds let other threads change the content of a
 * frame. Distributors patch and configure: so before any of it is trusted, one thread that holds
 * the interpreter's lock compares its own frames, read by the layout through the kernel, with the
 * results of the interpreter's own functions.
 */
#include "shim/parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/comm/python_frames.h"
#include "core/unwind/python_lines.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "shim/dlsym.h"

#define CHECKED_FRAMES 4
#define NOT_KEPT       "frames of Python are not kept: "

/* CPython's interface; 3.11 and later have these functions. Objects are pointers. */
static struct {
    const char *(*get_version)(void);
    const unsigned long *version;
    const void *code_type;
    void *none;
    void *(*this_thread)(void);
    int (*is_initialized)(void);
    void *(*newest)(void);
    void *(*first)(void);
    int (*add_pending_call)(int (*call)(void *), void *argument);
    /* Only with the interpreter's lock. */
    void *(*attached_thread)(void);
    void *(*thread_frame)(void *thread);
    void *(*frame_code)(void *frame);
    void *(*frame_back)(void *frame);
    int (*frame_instruction)(void *frame);
    int (*frame_line)(void *frame);
    void *(*attribute)(void *object, const char *name);
    const char *(*text)(void *object, ptrdiff_t *ret_bytes);
    void *(*import_module)(const char *name);
    void *(*modules)(void);
    void *(*dict_get)(void *dict, const char *key);
    int (*dict_delete)(void *dict, const char *key);
    void *(*make_function)(const void *method, void *self, void *module);
    void *(*call_method)(void *object, const char *name, const char *format, ...);
    void (*keep)(void *object);
    void (*release)(void *object);
    void (*clear_error)(void);
} python;

static struct ng_python_interpreter interpreter;

static bool find(void)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"Py_GetVersion", &python.get_version},
        {"Py_Version", &python.version},
        {"PyCode_Type", &python.code_type},
        {"_Py_NoneStruct", &python.none},
        {"PyGILState_GetThisThreadState", &python.this_thread},
        {"Py_IsInitialized", &python.is_initialized},
        {"PyInterpreterState_Head", &python.newest},
        {"PyInterpreterState_Main", &python.first},
        {"Py_AddPendingCall", &python.add_pending_call},
        {"PyThreadState_Get", &python.attached_thread},
        {"PyThreadState_GetFrame", &python.thread_frame},
        {"PyFrame_GetCode", &python.frame_code},
        {"PyFrame_GetBack", &python.frame_back},
        {"PyFrame_GetLasti", &python.frame_instruction},
        {"PyFrame_GetLineNumber", &python.frame_line},
        {"PyObject_GetAttrString", &python.attribute},
        {"PyUnicode_AsUTF8AndSize", &python.text},
        {"PyImport_ImportModule", &python.import_module},
        {"PyImport_GetModuleDict", &python.modules},
        {"PyDict_GetItemString", &python.dict_get},
        {"PyDict_DelItemString", &python.dict_delete},
        {"PyCFunction_NewEx", &python.make_function},
        {"PyObject_CallMethod", &python.call_method},
        {"Py_IncRef", &python.keep},
        {"Py_DecRef", &python.release},
        {"PyErr_Clear", &python.clear_error},
    };
    bool all = true;

    /* The first one shows whether there is Python at all. */
    python.get_version = NULL;
    for (unsigned i = 0; all && i < NG_COUNT(symbols); i++) {
        void *found = (void *)ng_real_dlsym(RTLD_DEFAULT, symbols[i].name);
        memcpy(symbols[i].place, &found, sizeof(found));
        all = found != NULL;
    }
    dlerror(); /* or the program would read our error as its own */
    return all;
}

/* ---- Layouts ---- */

/* Of 3.11 on, all of them. */
static const struct ng_python_layout common = {
    .owner_interpreter = 3,
    .frame_instruction = 56,
    .frame_owner = 70,
    .frame_previous = 8,
    .code_file = 112,
    .code_name = 128,
    .code_first_line = 68,
    .code_lines = 136,
    .text_length = 16,
    .text_state = 32,
    .text_ascii = 40,
    .text_other = 56,
    .bytes_count = 16,
    .bytes_data = 32,
    .object_type = 8,
};

static void lay_out_3_11(struct ng_python_layout *layout)
{
    *layout = common;
    layout->state_frame = 56;
    layout->state_has_cframe = true;
    layout->cframe_frame = 8;
    layout->frame_code = 32;
    layout->frame_previous = 48;
    layout->frame_owner = 69;
    layout->owner_interpreter = 255;
    layout->code_first_line = 72;
    layout->code_bytes = 184;
    layout->text_ascii = 48;
    layout->text_other = 72;
}

static void lay_out_3_12(struct ng_python_layout *layout)
{
    *layout = common;
    layout->state_frame = 56;
    layout->state_has_cframe = true;
    layout->code_bytes = 192;
}

/*
 * _Py_DebugOffsets of 3.13 and later: words of 64 bits, for more structures with each release. But
 * the fields read here for each kind of object are adjacent, in the same order.
 */
#define TOLD_WORDS_MAX 96u
enum { TOLD_COOKIE, TOLD_VERSION, TOLD_FREE_THREADED };
enum { FRAME_PREVIOUS, FRAME_EXECUTABLE, FRAME_INSTRUCTION, FRAME_OWNER = 4 };
enum { CODE_FILE, CODE_QUALIFIED_NAME = 2, CODE_LINES, CODE_FIRST_LINE, CODE_BYTES = 8 };
enum { BYTES_COUNT, BYTES_DATA };
enum { TEXT_STATE, TEXT_LENGTH, TEXT_ASCII, TEXT_WORDS };

struct told {
    uint16_t release;
    uint8_t current_frame, frame, code, type, bytes, text; /* index of the first word of each */
};

static const struct told told_of[] = {
    {0x30d, 23, 29, 35, 45, 65, 68},
    {0x30e, 26, 32, 40, 51, 75, 78},
    {0x30f, 26, 40, 48, 59, 87, 90},
};

/* False: no field has so large an offset. */
static bool put(uint16_t *ret_offset, uint64_t offset)
{
    *ret_offset = (uint16_t)offset;
    return offset < 4096;
}

static const char *lay_out_as_told(const struct told *at, struct ng_python_layout *layout)
{
    const void *runtime = (const void *)ng_real_dlsym(RTLD_DEFAULT, "_PyRuntime");
    uint64_t words[TOLD_WORDS_MAX];
    const uint64_t *frame = words + at->frame, *code = words + at->code, *bytes = words + at->bytes,
                   *text = words + at->text;

    dlerror();
    if (!runtime ||
        !ng_memory_read((uintptr_t)runtime, words, (at->text + TEXT_WORDS) * sizeof(words[0])) ||
        memcmp(&words[TOLD_COOKIE], "xdebugpy", sizeof(words[0])) != 0 ||
        words[TOLD_VERSION] != *python.version)
        return "_PyRuntime does not tell the layout";
    if (words[TOLD_FREE_THREADED])
        return "its build is free-threaded";
    *layout = common;
    bool all =
        put(&layout->state_frame, words[at->current_frame]) &&
        put(&layout->frame_previous, frame[FRAME_PREVIOUS]) &&
        put(&layout->frame_code, frame[FRAME_EXECUTABLE]) &&
        put(&layout->frame_instruction, frame[FRAME_INSTRUCTION]) &&
        put(&layout->frame_owner, frame[FRAME_OWNER]) && put(&layout->code_file, code[CODE_FILE]) &&
        put(&layout->code_name, code[CODE_QUALIFIED_NAME]) &&
        put(&layout->code_lines, code[CODE_LINES]) &&
        put(&layout->code_first_line, code[CODE_FIRST_LINE]) &&
        put(&layout->code_bytes, code[CODE_BYTES]) && put(&layout->object_type, words[at->type]) &&
        put(&layout->bytes_count, bytes[BYTES_COUNT]) &&
        put(&layout->bytes_data, bytes[BYTES_DATA]) &&
        put(&layout->text_length, text[TEXT_LENGTH]) &&
        put(&layout->text_state, text[TEXT_STATE]) && put(&layout->text_ascii, text[TEXT_ASCII]);
    /* Followed by the length and address of its UTF-8. */
    layout->text_other = (uint16_t)(layout->text_ascii + 16);
    return all ? NULL : "_PyRuntime tells a layout that cannot be";
}

/* NULL, or why there is none. */
static const char *lay_out(struct ng_python_layout *layout)
{
    if (sizeof(void *) != 8)
        return "this machine is not known";
    if (strstr(python.get_version(), "free-threading"))
        return "its build is free-threaded";
    if ((*python.version >> 4 & 0xf) < 0xc)
        return "it is no release";
    unsigned long release = *python.version >> 16;
    if (release == 0x30b || release == 0x30c) {
        release == 0x30b ? lay_out_3_11(layout) : lay_out_3_12(layout);
        return NULL;
    }
    for (unsigned i = 0; i < NG_COUNT(told_of); i++)
        if (told_of[i].release == release)
            return lay_out_as_told(&told_of[i], layout);
    return "the layout of this release is not known";
}

/* ---- Verification ---- */

static uint64_t peek(uint64_t address, uint16_t offset)
{
    uint64_t word = 0;

    return address && ng_memory_read(address + offset, &word, sizeof(word)) ? word : 0;
}

static bool is_attribute(void *object, const char *name, uint64_t there)
{
    void *value = python.attribute(object, name);

    if (!value)
        python.clear_error();
    else
        python.release(value);
    return value && (uintptr_t)value == there;
}

static bool is_text(void *code, const char *attribute, const char *kept, uint32_t kept_bytes,
                    uint32_t room)
{
    void *value = python.attribute(code, attribute);
    ptrdiff_t bytes = 0;
    const char *text = value ? python.text(value, &bytes) : NULL;
    /* Longer names are cut, and those without a form in UTF-8 are not compared; another frame will
     * do. */
    bool same = !text || (size_t)bytes > room ||
                ((size_t)bytes == kept_bytes && memcmp(text, kept, kept_bytes) == 0);

    if (!text)
        python.clear_error();
    if (value)
        python.release(value);
    return value && same;
}

/* The code object first, by fields that are certainly readable. */
static bool is_code(void *code, void *frame, uint32_t offset)
{
    const struct ng_python_layout *layout = &interpreter.layout;
    struct ng_python_code told;

    if (!is_attribute(code, "co_filename", peek((uintptr_t)code, layout->code_file)) ||
        !is_attribute(code, "co_qualname", peek((uintptr_t)code, layout->code_name)) ||
        !is_attribute(code, "co_linetable", peek((uintptr_t)code, layout->code_lines)) ||
        !ng_python_frames_describe(layout, code, &told))
        return false;
    uint32_t kept = told.lines_bytes < NG_PYTHON_LINES_MAX ? told.lines_bytes : NG_PYTHON_LINES_MAX;
    int line = ng_python_line(told.lines, kept, told.first_line, offset);
    return is_text(code, "co_filename", told.file, told.file_bytes, sizeof(told.file)) &&
           is_text(code, "co_qualname", told.name, told.name_bytes, sizeof(told.name)) &&
           (line == 0 || line == python.frame_line(frame));
}

/* Is the frame at `at`, or the first one before it that is not internal to the interpreter,
 * `frame`? *at becomes the next. */
static bool is_frame(uint64_t *at, void *frame)
{
    const struct ng_python_layout *layout = &interpreter.layout;
    void *code = python.frame_code(frame);
    uint64_t there = *at;

    while (there && (peek(there, layout->frame_owner) & 0xff) >= layout->owner_interpreter)
        there = peek(there, layout->frame_previous);
    uint64_t bytes = (uintptr_t)code + layout->code_bytes,
             instruction = peek(there, layout->frame_instruction);
    bool same = code && (peek(there, layout->frame_code) & ~NG_PYTHON_TAGS) == (uintptr_t)code &&
                peek((uintptr_t)code, layout->object_type) == (uintptr_t)interpreter.code_type &&
                instruction >= bytes &&
                instruction - bytes == (uint64_t)python.frame_instruction(frame) &&
                is_code(code, frame, (uint32_t)(instruction - bytes));
    *at = peek(there, layout->frame_previous);
    if (code)
        python.release(code);
    return same;
}

static const char *check(void)
{
    const struct ng_python_layout *layout = &interpreter.layout;
    void *thread = python.attached_thread();

    if (python.newest() != python.first())
        return "there are several interpreters";
    if (thread != python.this_thread())
        return "its first thread has several states";
    uint64_t at = peek((uintptr_t)thread, layout->state_frame);
    if (layout->state_has_cframe)
        at = peek(at, layout->cframe_frame);
    void *frame = python.thread_frame(thread);
    if (!frame)
        return "its first thread has no frames";
    bool same = true;
    for (int i = 0; same && frame && i < CHECKED_FRAMES; i++) {
        same = is_frame(&at, frame);
        void *back = python.frame_back(frame);
        python.release(frame);
        frame = back;
    }
    if (frame)
        python.release(frame);
    return same ? NULL : "its frames are not as this release should have them";
}

/* ---- Shutdown ---- */

/* Frees the states of all threads but one, after the functions registered with atexit were
 * called. */
static void *on_end(void *self, void *arguments)
{
    ng_python_frames_close();
    python.keep(python.none);
    return python.none;
}

/* PyMethodDef. */
static const struct {
    const char *name;
    void *(*function)(void *self, void *arguments);
    int flags;
    const char *doc;
} on_end_method = {.name = "ncclguard", .function = on_end, .flags = 4 /* METH_NOARGS */};

static bool await_end(void)
{
    bool had_it = python.dict_get(python.modules(), "atexit") != NULL;
    void *module = python.import_module("atexit");
    void *function = module ? python.make_function(&on_end_method, NULL, NULL) : NULL;
    void *done = function ? python.call_method(module, "register", "O", function) : NULL;

    if (!done)
        python.clear_error();
    if (module && !had_it && python.dict_delete(python.modules(), "atexit") != 0)
        python.clear_error();
    if (done)
        python.release(done);
    if (function)
        python.release(function);
    if (module)
        python.release(module);
    return done != NULL;
}

/* Runs on the interpreter's first thread, with its lock, between two of the program's
 * instructions. */
static int begin(void *unused)
{
    int saved = errno;
    const char *why = check();

    if (!why && !await_end())
        why = "its end could not be waited for";
    if (!why && ng_python_frames_start(&interpreter) != 0)
        why = "no memory";
    if (why)
        ng_log(NG_LOG_DEBUG, NOT_KEPT "%s", why);
    errno = saved;
    return 0;
}

bool ng_interpreter_prepare(void)
{
    bool complete = find();

    if (!python.get_version)
        return false;
    memset(&interpreter, 0, sizeof(interpreter));
    const char *why = !complete                  ? "the layout of this release is not known"
                      : !python.is_initialized() ? "it has not begun, or has ended"
                                                 : lay_out(&interpreter.layout);
    interpreter.code_type = python.code_type;
    interpreter.this_thread = python.this_thread;
    interpreter.is_initialized = python.is_initialized;
    interpreter.newest = python.newest;
    interpreter.first = python.first;
    if (!why && python.add_pending_call(begin, NULL) != 0)
        why = "it is busy";
    if (why)
        ng_log(NG_LOG_DEBUG, NOT_KEPT "%s (Python %.40s)", why, python.get_version());
    return !why;
}
