/*
 * HMAC with SHA-256: the vectors of FIPS 180-4 (as NIST publishes them) and of RFC 4231.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/util/hmac.h"
}

static std::string hex(const unsigned char *bytes, size_t count)
{
    std::string text;
    for (size_t i = 0; i < count; i++) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

/* In pieces of this size: how it comes makes no difference. */
static std::string sha256(const std::string &text, size_t piece)
{
    unsigned char digest[NG_HMAC_BYTES];
    struct ng_sha256 sha;
    ng_sha256_init(&sha);
    for (size_t at = 0; at < text.size(); at += piece)
        ng_sha256_add(&sha, text.data() + at, std::min(piece, text.size() - at));
    ng_sha256_finish(&sha, digest);
    return hex(digest, sizeof(digest));
}

static std::string hmac(const std::string &key, const std::string &text)
{
    unsigned char mac[NG_HMAC_BYTES];
    struct ng_hmac hmac;
    ng_hmac_init(&hmac, key.data(), key.size());
    ng_hmac_add(&hmac, text.data(), text.size() / 2);
    ng_hmac_add(&hmac, text.data() + text.size() / 2, text.size() - text.size() / 2);
    ng_hmac_finish(&hmac, mac);
    return hex(mac, sizeof(mac));
}

TEST(Hmac, Sha256IsThatOfFips180)
{
    const struct {
        std::string text, digest;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1000000, 'a'),
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (const auto &one : vectors)
        for (size_t piece : {1, 3, 64, 1000})
            EXPECT_EQ(sha256(one.text, piece), one.digest) << one.text.size();
}

TEST(Hmac, IsThatOfRfc4231)
{
    std::string counted;
    for (char c = 1; c <= 25; c++)
        counted += c;
    const struct {
        std::string key, text, mac;
    } vectors[] = {
        {std::string(20, '\x0b'), "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {std::string(20, '\xaa'), std::string(50, '\xdd'),
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {counted, std::string(50, '\xcd'),
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {std::string(131, '\xaa'),
         "This is a test using a larger than block-size key and a larger than block-size data. The "
         "key needs to be "
         "hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (const auto &one : vectors)
        EXPECT_EQ(hmac(one.key, one.text), one.mac);
}

TEST(Hmac, OneBitIsAnother)
{
    unsigned char a[NG_HMAC_BYTES] = {}, b[NG_HMAC_BYTES] = {};
    EXPECT_TRUE(ng_hmac_same(a, b));
    for (unsigned i = 0; i < 8 * NG_HMAC_BYTES; i++) {
        b[i / 8] ^= (unsigned char)(1 << i % 8);
        EXPECT_FALSE(ng_hmac_same(a, b)) << i;
        b[i / 8] = 0;
    }
}
