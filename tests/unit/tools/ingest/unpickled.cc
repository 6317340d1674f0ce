/*
 * What the reader of pickles makes of some bytes, as text: containers are summed up as the text of
 * what they hold.
 */
#include "tests/unit/tools/ingest/unpickled.h"

#include <cstdio>
#include <vector>

extern "C" {
#include "tools/ingest/read_pickle.h"
}

namespace
{

/* The texts of all containers; a summary is an index here, plus one. */
struct Texts {
    std::vector<std::string> of;
};

std::string text_of(const Texts &texts, const ng_unpickle_value &value)
{
    char number[64];

    switch (value.kind) {
    case NG_UNPICKLE_NONE:
        return "None";
    case NG_UNPICKLE_BOOL:
        return value.number ? "True" : "False";
    case NG_UNPICKLE_INT:
        return std::to_string(value.number);
    case NG_UNPICKLE_FLOAT:
        snprintf(number, sizeof(number), "%g", value.real);
        return number;
    case NG_UNPICKLE_TEXT:
        return "'" + std::string(value.text, value.length) + "'";
    case NG_UNPICKLE_BYTES:
        return "b" + std::to_string(value.length);
    case NG_UNPICKLE_LIST:
        return "[" + (value.summary ? texts.of[value.summary - 1] : "") + "]";
    case NG_UNPICKLE_TUPLE:
        return "(" + (value.summary ? texts.of[value.summary - 1] : "") + ")";
    case NG_UNPICKLE_DICT:
        return "{" + (value.summary ? texts.of[value.summary - 1] : "") + "}";
    default:
        return "?";
    }
}

std::string &text_for(Texts *texts, ng_unpickle_value *container)
{
    if (!container->summary) {
        texts->of.emplace_back();
        container->summary = texts->of.size();
    }
    return texts->of[container->summary - 1];
}

uint16_t no_word(void *, const char *, uint32_t)
{
    return 0;
}

int take_items(void *context, ng_unpickle_value *container, const ng_unpickle_value *items,
               size_t count)
{
    auto *texts = static_cast<Texts *>(context);
    for (size_t i = 0; i < count; i++) {
        std::string item = text_of(*texts, items[i]);
        std::string &all = text_for(texts, container);
        all += (all.empty() ? "" : ",") + item;
    }
    return 0;
}

int take_pairs(void *context, ng_unpickle_value *dict, const ng_unpickle_value *pairs, size_t count)
{
    auto *texts = static_cast<Texts *>(context);
    for (size_t i = 0; i < count; i++) {
        std::string pair = text_of(*texts, pairs[2 * i]) + ":" + text_of(*texts, pairs[2 * i + 1]);
        std::string &all = text_for(texts, dict);
        all += (all.empty() ? "" : ",") + pair;
    }
    return 0;
}

} // namespace

std::string unpickled(const std::string &bytes)
{
    const ng_unpickle_sink sink = {no_word, take_items, take_pairs};
    std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    ng_unpickle unpickle;
    ng_unpickle_value root;
    char why[256] = "";
    Texts texts;

    ng_unpickle_init(&unpickle);
    int error = ng_unpickle_read(&unpickle, copy.data(), copy.size(), &sink, &texts, &root, why,
                                 sizeof(why));
    std::string text = error ? std::string("error: ") + why : text_of(texts, root);
    ng_unpickle_fini(&unpickle);
    return text;
}
