/*
 * URLs of stores: what is understood, what is refused, and that no password gets into a text.
 */
#include "tests/unit/store/kv/kv.h"

namespace
{

struct Parsed {
    explicit Parsed(const std::string &text)
    {
        error = ng_url_parse(text.c_str(), &url, why, sizeof(why));
    }
    std::string host(unsigned i = 0) const
    {
        return std::string(url.hosts[i].name) + " " + std::to_string(url.hosts[i].port);
    }
    std::string printed() const
    {
        char text[NG_URL_TEXT_BYTES];
        ng_url_print(&url, text, sizeof(text));
        return text;
    }
    struct ng_url url = {};
    char why[512] = "";
    int error;
};

TEST(Url, EveryFormIsUnderstood)
{
    EXPECT_EQ(Parsed("none").url.kind, NG_URL_NONE);
    EXPECT_EQ(Parsed("local:").url.kind, NG_URL_LOCAL);
    EXPECT_STREQ(Parsed("local:").url.path, "");
    EXPECT_STREQ(Parsed("local:/dev/shm/a@b:c").url.path, "/dev/shm/a@b:c");

    Parsed plain("redis://host");
    EXPECT_EQ(plain.error, 0) << plain.why;
    EXPECT_EQ(plain.host(), "host 6379");
    EXPECT_EQ(plain.url.db, 0);
    EXPECT_FALSE(plain.url.tls);
    EXPECT_STREQ(plain.url.password, "");

    Parsed full("redis://user:pa%40ss%3A%2f@[fe80::1%25eth0]:7000/3");
    EXPECT_EQ(full.error, 0) << full.why;
    EXPECT_STREQ(full.url.user, "user");
    EXPECT_STREQ(full.url.password, "pa@ss:/");
    EXPECT_EQ(full.host(), "fe80::1%eth0 7000");
    EXPECT_EQ(full.url.db, 3);

    Parsed password("redis://:a:b@host/");
    EXPECT_EQ(password.error, 0) << password.why;
    EXPECT_STREQ(password.url.user, "");
    EXPECT_STREQ(password.url.password, "a:b");

    Parsed tls("rediss://host:1?ca=/a%20b&cert=/c&key=/k&verify=no&db=2");
    EXPECT_EQ(tls.error, 0) << tls.why;
    EXPECT_TRUE(tls.url.tls);
    EXPECT_FALSE(tls.url.verify);
    EXPECT_STREQ(tls.url.ca, "/a b");
    EXPECT_STREQ(tls.url.cert, "/c");
    EXPECT_STREQ(tls.url.key, "/k");
    EXPECT_EQ(tls.url.db, 2);
    EXPECT_TRUE(Parsed("rediss://host").url.verify);

    Parsed unix_socket("redis+unix:///run/redis%20x.sock?db=1");
    EXPECT_EQ(unix_socket.error, 0) << unix_socket.why;
    EXPECT_EQ(unix_socket.url.kind, NG_URL_UNIX);
    EXPECT_STREQ(unix_socket.url.path, "/run/redis x.sock");
    EXPECT_EQ(unix_socket.url.db, 1);
    EXPECT_STREQ(Parsed("redis+unix://u:p@/run/s").url.password, "p");

    Parsed sentinel("redis+sentinel://:pw@h1,h2:7,[::1]/my%2Dmaster/5");
    EXPECT_EQ(sentinel.error, 0) << sentinel.why;
    EXPECT_EQ(sentinel.url.host_count, 3u);
    EXPECT_EQ(sentinel.host(0), "h1 26379");
    EXPECT_EQ(sentinel.host(1), "h2 7");
    EXPECT_EQ(sentinel.host(2), "::1 26379");
    EXPECT_STREQ(sentinel.url.master, "my-master");
    EXPECT_EQ(sentinel.url.db, 5);
}

TEST(Url, MistakesAreNamedWithTheMend)
{
    const struct {
        const char *url, *says;
    } rows[] = {
        {"", "redis://host"},
        {"http://host", "redis://host"},
        {"redis:host", "redis://host"},
        {"REDIS://host", "redis://host"},
        {"local", "local:"},
        {"local:///dev/shm", "local:/"},
        {"redis://", "host is missing"},
        {"redis://:6379", "host is missing"},
        {"redis://host:", "port"},
        {"redis://host:0", "port"},
        {"redis://host:65536", "port"},
        {"redis://host:6379x", "port"},
        {"redis://::1", "brackets"},
        {"redis://[::1", "brackets"},
        {"redis://[::1]6379", "brackets"},
        {"redis://host/x", "database"},
        {"redis://host/-1", "database"},
        {"redis://host/0/1", "database"},
        {"redis://h1,h2", "sentinel"},
        {"redis://user@host", "user:password"},
        {"redis://user:@host", "empty"},
        {"redis://:p%4@host", "percent"},
        {"redis://:p%zz@host", "percent"},
        {"redis://:p%00@host", "%00"},
        {"redis://ho st", "character"},
        {"redis://host?verify=no", "db="},
        {"rediss://host?verify=maybe", "yes or no"},
        {"rediss://host?cert=/c", "together"},
        {"rediss://host?ca=", "file"},
        {"rediss://host?what=ever", "ca="},
        {"redis+unix://", "path of a socket"},
        {"redis+unix://run/redis.sock", "three slashes"},
        {"redis+sentinel://h1,h2", "name of the master"},
        {"redis+sentinel://h1,,h2/m", "host is missing"},
        {"redis+sentinel://h1/m/x", "database"},
        {"redis+sentinel://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/m", "16"},
    };
    for (const auto &row : rows) {
        Parsed parsed(row.url);
        EXPECT_EQ(parsed.error, -EINVAL) << row.url;
        EXPECT_NE(std::string(parsed.why).find(row.says), std::string::npos)
            << row.url << ": " << parsed.why;
        EXPECT_EQ(std::string(parsed.why).compare(0, 7, "store \""), 0) << parsed.why;
    }
}

TEST(Url, WhatIsPrintedIsReadTheSameButForThePassword)
{
    for (const char *text :
         {"none", "local:", "local:/dev/shm/x", "redis://host:6379", "redis://[::1]:7/3",
          "rediss://host:6379", "redis+unix:///run/s", "redis+unix:///run/s?db=4",
          "redis+sentinel://h1:26379,h2:7/m", "redis+sentinel://h1:26379/m/2"})
        EXPECT_EQ(Parsed(text).printed(), text);
    EXPECT_EQ(Parsed("redis://u:secret@h").printed(), "redis://u:***@h:6379");
    EXPECT_EQ(Parsed("redis+unix://:secret@/s").printed(), "redis+unix://:***@/s");
    char cut[12];
    Parsed parsed("redis://host:6379");
    ng_url_print(&parsed.url, cut, sizeof(cut));
    EXPECT_STREQ(cut, "redis://hos");
}

TEST(Url, NoTextHasThePasswordHoweverWrongTheUrl)
{
    for (const char *text :
         {"redis://user:SECRET@host:x", "redis://user:a/SECRET@host",
          "redis://user:a@SECRET@host:x", "redis://:SECRET", "redis://SECRET@host",
          "redis:/:SECRET@host", "redis:user:SECRET@host", "user:SECRET@host", ":SECRET@host",
          "redis://user:a?SECRET@host", "redis://host:SECRET", "redis://user:SECRET",
          "redis+sentinel://:SECRET@h1:x/m", "http://u:SECRET@host", "redis://host?password=SECRET",
          "redis+unix://u:SECRET@run/s", "redis://u:SECRET%@host", "redis://user:SECRET,x",
          "redis+sentinel://h1,u:SECRET/m"}) {
        Parsed parsed(text);
        char shown[256];
        ng_url_redact(text, shown, sizeof(shown));
        EXPECT_EQ(parsed.error, -EINVAL) << text;
        EXPECT_EQ(std::string(shown).find("SECRET"), std::string::npos) << text << ": " << shown;
        EXPECT_EQ(std::string(parsed.why).find("SECRET"), std::string::npos) << parsed.why;
    }
}

TEST(Url, RandomTextsBreakNothing)
{
    static const char *const pieces[] = {"redis://",
                                         "rediss://",
                                         "redis+unix://",
                                         "redis+sentinel://",
                                         "local:",
                                         ":",
                                         "@",
                                         "/",
                                         "?",
                                         "&",
                                         "=",
                                         "db=",
                                         "ca=",
                                         "[",
                                         "]",
                                         ",",
                                         "%",
                                         "%41",
                                         "%00",
                                         "host",
                                         "::1",
                                         "1",
                                         "65536"};
    std::mt19937 random(20240607);
    int good = 0;
    for (int i = 0; i < 200000; i++) {
        std::string text;
        for (unsigned count = random() % 12; count; count--) {
            if (random() % 16 == 0)
                text += (char)(1 + random() % 255);
            else
                text += pieces[random() % (sizeof(pieces) / sizeof(pieces[0]))];
        }
        if (random() % 200 == 0)
            text += std::string(random() % 3000, 'x');
        /* Where a password stands, however the rest is: it is in no text. */
        bool password = random() % 2;
        if (password)
            text.insert(text.find("//") == std::string::npos ? 0 : text.find("//") + 2,
                        "u:SECRET@");
        Parsed parsed(text);
        good += !parsed.error;
        if (parsed.error) {
            ASSERT_EQ(parsed.error, -EINVAL);
            ASSERT_STRNE(parsed.why, "");
        }
        std::string shown = parsed.error ? parsed.why : parsed.printed();
        if (password && parsed.url.kind != NG_URL_LOCAL) {
            ASSERT_EQ(shown.find("SECRET"), std::string::npos) << text << ": " << shown;
        }
        /* What was understood is understood again from what is printed, but for bytes that no log
         * shows. */
        bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c > ' '; });
        if (plain && !parsed.error && !parsed.url.password[0] && !parsed.url.tls &&
            text.find('%') == std::string::npos && text.size() < 200) {
            ASSERT_EQ(Parsed(parsed.printed()).error, 0) << text << ": " << parsed.printed();
        }
    }
    EXPECT_GT(good, 1000);
}

} // namespace
