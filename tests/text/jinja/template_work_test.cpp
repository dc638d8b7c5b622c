#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "text/chat/chat_template.hpp"

// Templates that do much with long texts: what they read counts, and not only what they write.

using namespace troupe;
using namespace troupe::gpu;

TEST_CASE("a template's searches in long texts are steps, though they write next to nothing") {
  const std::vector<chat_message> talk{{"user", "Hi"}};
  const std::string texts = "{% set s = 'a' * 4000000 %}{% set n = 'b' * 4000000 %}";
  for (const std::string each :
       {"s.strip(n)", "s.lstrip(n)", "s.find(n)", "s.rfind(n)", "s.count(n)", "s.startswith(n)",
        "s.isupper()", "s.replace(n, '')|length", "s.split(n)|length", "s.partition(n)|length",
        "n in s", "s == n ~ 'c'", "s|length", "s|int(0)", "s|wordcount", "s is lower"}) {
    INFO(each);
    const auto source = texts + "{% for i in range(99999) %}{% set z = " + each + " %}{% endfor %}";
    const auto t = chat_template::of_text(source, "chat_template.jinja", {});
    REQUIRE(t.problem().empty());
    const auto w = t.write(talk, true, {});
    REQUIRE_FALSE(w);
    CHECK_THAT(w.error().text, Catch::Contains("takes more than 2000000 steps"));
  }
}
