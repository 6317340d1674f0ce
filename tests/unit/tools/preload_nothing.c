/* Preloaded in place of the library where the test is about the command alone. */
extern const int ng_preload_nothing;
const int ng_preload_nothing;
