#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "text/chat/chat_template.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

const std::vector<chat_message> talk{{"system", "Be kind."}, {"user", "Hi"}, {"assistant", "Yes"}};

/// The text that a template writes, or the sentence why not.
std::string written(const std::string& source) {
  const auto c = chat_template::of_text(source, "chat_template.jinja", {{"bos_token", "<s>"}});
  if (!c.problem().empty()) return c.problem();
  const auto w = c.write(talk, true, {});
  return w ? w->text : w.error().text;
}

std::string repeated(const std::string& s, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += s;
  return all;
}

}  // namespace

TEST_CASE("a template is refused with its line and the construct that is not supported") {
  CHECK(written("a\nb {{ x | xmlattr }}") ==
        "chat_template.jinja line 2: the filter 'xmlattr' is not supported");
  CHECK(written("{{ x is escaped_twice }}") ==
        "chat_template.jinja line 1: the test 'escaped_twice' is not supported");
  CHECK(written("\n\n{% include 'other' %}") ==
        "chat_template.jinja line 3: the tag 'include' is not supported here");
  CHECK(written("{{ 'x'.zfill(3) }}") ==
        "chat_template.jinja line 1: the method 'zfill' is not supported");
  CHECK(written("{{ x | map('unknown') }}") ==
        "chat_template.jinja line 1: the filter 'unknown' is not supported");
  CHECK(written("{{ x | selectattr('a', 'unknown') }}") ==
        "chat_template.jinja line 1: the test 'unknown' is not supported");
  CHECK(written("{{ f(*x) }}") ==
        "chat_template.jinja line 1: arguments with '*' are not supported");
  CHECK(written("{% for x in y recursive %}{% endfor %}") ==
        "chat_template.jinja line 1: a recursive loop is not supported");
  CHECK(written("{% if 1 %}\n{% else %}") ==
        "chat_template.jinja line 2: ends within a block, expected 'endif'");
  CHECK(written("{{ 1 + }}") == "chat_template.jinja line 1: found '}}', expected an expression");
}

TEST_CASE("an error of a template that runs has the line where it happens") {
  CHECK(written("{% set x = 1 %}\n{{ x }}\n{{ x.y.z }}") ==
        "chat_template.jinja line 3: a int has no attribute 'y'");
  CHECK(written("\n{{ nothing.x }}") == "chat_template.jinja line 2: 'nothing' is undefined");
  CHECK(written("{% macro m() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ m() }}") ==
        "chat_template.jinja line 2: divides by zero");
  CHECK(written("{{ raise_exception('not so') }}") ==
        "chat_template.jinja refuses the conversation: not so");
}

TEST_CASE("a template cannot take more stack, steps, memory or output than its limits") {
  const auto refused = [](const std::string& source, const std::string& why) {
    INFO(source.substr(0, 200));
    const auto got = written(source);
    CHECK(got.size() < 300);
    CHECK_THAT(got, Catch::Contains(why));
  };
  // Nesting, in the reader.
  refused("{{ " + repeated("(", 90'000) + "1" + repeated(")", 90'000) + " }}",
          "nests expressions deeper than");
  refused("{{ " + repeated("[", 90'000) + "1" + repeated("]", 90'000) + " }}",
          "nests expressions deeper than");
  refused("{{ " + repeated("-", 100'000) + "1 }}", "nests expressions deeper than");
  refused("{{ " + repeated("not ", 100'000) + "1 }}", "nests expressions deeper than");
  refused("{{ " + repeated("1 if 1 else ", 40'000) + "1 }}", "nests expressions deeper than");
  refused("{{ 1" + repeated(" + 1", 50'000) + " }}", "an expression of more than");
  refused("{{ x" + repeated(".x", 50'000) + " }}", "an expression of more than");
  refused("{{ x" + repeated("|trim", 50'000) + " }}", "an expression of more than");
  refused("{{ x" + repeated("[0]", 50'000) + " }}", "an expression of more than");
  refused(repeated("{% if 1 %}", 40'000), "nests blocks deeper than");
  refused(repeated("{% for x in y %}", 30'000), "nests blocks deeper than");
  refused(repeated("{{ 1 }}", 140'000), "tokens, expected fewer");
  refused(repeated(" ", (1 << 20) + 1), "bytes, expected at most 1048576");
  // Nesting, of calls and values.
  refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests calls deeper than");
  refused("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
          "nests calls deeper than");
  const std::string forever = "{% for i in range(90000) %}{% for j in range(90000) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  refused("{% set ns = namespace(x=[]) %}" + forever + "{% set ns.x = [ns.x] %}" + ends,
          "nests values deeper than");
  refused("{% set ns = namespace(x={}) %}" + forever + "{% set ns.x = {'a': ns.x.items} %}" + ends,
          "nests values deeper than");
  refused("{% set ns = namespace(x=1) %}" + forever +
              "{% for y in [ns.x] %}{% set ns.x = [loop] %}{% endfor %}" + ends,
          "nests values deeper than");
  // Steps and bytes.
  refused(forever + ends, "takes more than 2000000 steps");
  refused("{{ range(100001) | list }}", "range: has more than 100000 numbers");
  refused("{{ 'x' * 1000000000 }}", "writes more than");
  refused("{{ ([1] * 1000000000) | length }}", "writes more than");
  refused("{{ 'x' | indent(1000000000, true) }}", "writes more than");
  refused("{{ 'x' | center(1000000000) }}", "writes more than");
  refused("{{ [1] | tojson(indent=1000000000) }}", "writes more than");
  refused("{{ [1] | batch(1000000000, 0) | list }}", "writes more than");
  refused("{{ ('x' * 1000000).replace('x', 'y' * 1000) }}", "writes more than");
  refused("{{ ('y' * 10000).join(('x' * 100000) | list) }}", "writes more than");
  refused("{% set ns = namespace(x='ab') %}" + forever + "{% set ns.x = ns.x + ns.x %}" + ends,
          "writes more than");
  refused("{% for i in range(30) %}{{ 'x' * 1000000 }}{% endfor %}", "writes more than");
  refused("{{ '%9999999999d' % 1 }}", "conversion that is not supported");
  refused("{{ 9223372036854775807 + 1 }}", "more than 63 bits");
  refused("{{ 10 ** 100 }}", "more than 63 bits");
  refused("{{ 99999999999999999999 }}", "expected at most 63 bits");
}

TEST_CASE("values that contain themselves, and long chains of them, are freed") {
  CHECK(written("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.all = [ns] %}ok") == "ok");
  CHECK(written("{% set ns = namespace() %}{% macro m() %}{% endmacro %}{% set ns.m = m %}"
                "{% for x in [ns] %}{% set ns.l = loop %}{{ loop.changed(loop) }}{% endfor %}") ==
        "True");
  CHECK(written("{% set ns = namespace(m=0) %}{% macro f(x) %}{% macro g() %}{% endmacro %}"
                "{% set ns.m = g %}{% endmacro %}"
                "{% for i in range(50000) %}{{ f(ns.m) }}{% endfor %}ok") == "ok");
  CHECK(written("{% set ns = namespace(c=0) %}{% macro f() %}{% set ns.c = caller %}{% endmacro %}"
                "{% for i in range(50000) %}{% set y = ns.c %}{% call f() %}{% endcall %}"
                "{% endfor %}ok") == "ok");
}

TEST_CASE("templates with changed bytes are evaluated or refused, never more") {
  std::vector<std::string> sources;
  const auto folder = std::string{test::source_dir()} + "/tests/text/templates/";
  for (const char* name : {"turns", "blocks", "json", "thoughts", "tools", "spaces"}) {
    std::ifstream in{folder + name + ".jinja"};
    sources.emplace_back(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
    REQUIRE(sources.back().size() > 100);
  }
  std::ifstream lines{folder + "one_liners.txt"};
  for (std::string line; std::getline(lines, line);) sources.push_back(line);
  const std::string pieces[] = {"{{",          "}}",    "{%",      "%}",    "{#",
                                "#}",          "-",     "(",       ")",     "[",
                                "]",           "'",     "\"",      "|",     ".",
                                ":",           "*",     "~",       "not ",  "in ",
                                "\\",          "is ",   "if ",     "else ", "0",
                                "99999999999", "None",  "\xff",    "\n",    "{% endfor %}",
                                "{% endif %}", "|list", "|tojson", "[::-1]"};
  random_source random{7};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.next() % n); };
  int evaluated = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto source = sources[below(sources.size())];
    if (source.empty()) continue;
    for (auto changes = 1 + below(3); changes > 0; --changes) {
      const auto at = below(source.size() + 1);
      const auto& other = sources[below(sources.size())];
      switch (below(4)) {
        case 0:
          source.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 1:
          source.erase(at, 1 + below(8));
          break;
        case 2:
          source.insert(at, other.substr(below(other.size() + 1), below(40)));
          break;
        default:
          if (at < source.size()) source[at] = static_cast<char>(below(256));
      }
    }
    const auto c = chat_template::of_text(source, "mutated", {{"bos_token", "<s>"}});
    const bool done = c.problem().empty() && c.write(talk, true, {}).has_value();
    ++(done ? evaluated : refused);
  }
  CHECK(evaluated > 1000);
  CHECK(refused > 1000);
}
