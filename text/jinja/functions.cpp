#include <algorithm>
#include <cstring>

#include "text/jinja/evaluator.hpp"

namespace troupe::gpu::jinja {

namespace {

class cycler final : public object, public std::enable_shared_from_this<cycler> {
 public:
  explicit cycler(list all) : all_{std::move(all)} {}
  std::string_view kind() const override { return "cycler"; }
  unsigned depth() const override { return all_.depth; }
  value attribute(const std::string& name) override {
    if (name == "current") return all_.items[at_];
    if (name != "next" && name != "reset") return object::attribute(name);
    const auto step = name == "next" ? &cycler::next : &cycler::reset;
    return callable_value(
        "method of a cycler",
        [self = shared_from_this(), step](auto&&...) { return ((*self).*step)(); }, depth());
  }

 private:
  value next() {
    auto v = all_.items[at_];
    at_ = (at_ + 1) % all_.items.size();
    return v;
  }
  value reset() {
    at_ = 0;
    return none{};
  }

  const list all_;
  std::size_t at_ = 0;
};

/// Jinja's sandbox has the same limit, MAX_RANGE. The numbers are made at once and charged for.
value make_range(evaluator& e, const value&, const bound& args) {
  const auto& given = args.all();
  std::int64_t ends[3] = {0, 0, 1};
  const auto count = given.positional.size();
  if (count < 1 || count > 3 || !given.named.empty())
    fail("range: found {} arguments, expected 1 to 3", count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = given.positional[i].integer_like();
    if (!n) fail("range: found a {}, expected integers", type_of(given.positional[i]));
    ends[i] = *n;
  }
  if (count == 1) std::swap(ends[0], ends[1]);
  const auto step = ends[2];
  if (step == 0) fail("range: found the step 0");
  std::vector<value> all;
  constexpr std::size_t max_range = 100'000;
  for (auto at = ends[0]; step > 0 ? at < ends[1] : at > ends[1];) {
    if (all.size() >= max_range) fail("range: has more than {} numbers, expected fewer", max_range);
    all.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  e.work().bytes(all.size() * sizeof(value));
  return list{std::move(all), list::kind::range};
}

dictionary dictionary_of(evaluator& e, const arguments& given) {
  dictionary d;
  if (given.positional.size() > 1) fail("dict: found several arguments, expected one");
  if (!given.positional.empty()) {
    const auto& from = given.positional[0];
    if (const auto* other = from.as_dictionary()) {
      e.work().bytes(other->entries.size() * sizeof(dictionary::entry));
      d = *other;
    } else {
      for (const auto& pair : items_of(from, e.work())) {
        auto both = items_of(pair, e.work());
        if (both.size() != 2) fail("dict: found an item that is no pair");
        d.set(std::move(both[0]), std::move(both[1]), e.work());
      }
    }
  }
  for (const auto& [name, v] : given.named) d.set(value{name}, v, e.work());
  return d;
}

value make_dictionary(evaluator& e, const value&, const bound& args) {
  return dictionary_of(e, args.all());
}

/// A namespace may come to contain itself, hence the promise to clear it.
value make_namespace(evaluator& e, const value&, const bound& args) {
  const auto made = std::make_shared<space>();
  for (const auto& [key, v] : dictionary_of(e, args.all()).entries)
    if (const auto* name = key.as_text()) made->attributes[name->bytes()] = v;
  e.work().bytes(sizeof(space));
  e.remember([made] { made->attributes.clear(); });
  return std::shared_ptr<object>{made};
}

value make_cycler(evaluator&, const value&, const bound& args) {
  const auto& values = args.all().positional;
  if (values.empty()) fail("cycler: found no values");
  return std::shared_ptr<object>{std::make_shared<cycler>(list{values})};
}

/// Nothing at the first call, the separator at all later ones.
value make_joiner(evaluator&, const value&, const bound& args) {
  value between = args[0] ? value{args.needed_text(0)} : value{", "};
  return callable_value("joiner", [between, used = false](evaluator&, const arguments&) mutable {
    return std::exchange(used, true) ? between : value{""};
  });
}

/// transformers adds it; templates refuse conversations with it, such as two user turns in a row.
value raise_exception(evaluator& e, const value&, const bound& args) {
  throw refusal{shown(args.needed(0), e.work()).bytes()};
}

/// transformers adds it for templates that write the date. Conversions are a list of known letters,
/// since an unknown one is undefined behaviour of strftime(); `%-d` without the leading zero is an
/// extension of glibc. A zero byte would cut the format off unseen.
value strftime_now(evaluator& e, const value&, const bound& args) {
  const auto& format = args.needed_text(0).bytes();
  for (auto at = format.find('%'); at != format.npos; at = format.find('%', at + 2)) {
    const auto letter = at + 1 + (format.substr(at + 1, 1) == "-");
    constexpr std::string_view known = "aAbBcdDeFGhHIjkmMnpRSTuUVwWxXyY%";
    if (letter >= format.size() || known.find(format[letter]) == known.npos)
      fail("strftime_now: the format '{}' is not supported", format);
    at = letter - 1;
  }
  if (format.empty()) return value{""};
  constexpr std::size_t max_bytes = 4096;
  char out[max_bytes];
  const auto size = std::strftime(out, sizeof out, format.c_str(), &e.now());
  if (size == 0 || std::strlen(format.c_str()) != format.size())
    fail("strftime_now: makes more than {} bytes, expected fewer", max_bytes);
  return value{std::string(out, size)};
}

constexpr named_function functions[] = {
    {"range", make_range, {"*"}},
    {"dict", make_dictionary, {"*"}},
    {"namespace", make_namespace, {"*"}},
    {"cycler", make_cycler, {"*"}},
    {"joiner", make_joiner, {"sep"}},
    {"raise_exception", raise_exception, {"message"}},
    {"strftime_now", strftime_now, {"format"}},
};

}  // namespace

value space::attribute(const std::string& name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? object::attribute(name) : found->second;
}

value global_function(std::string_view name) {
  const auto* f = find_named(functions, name);
  if (!f) return {};
  return callable_value("function",
                        [f](evaluator& e, const arguments& given) { return (*f)(e, {}, given); });
}

value method_of(const value& v, const std::string& name) {
  const auto call = [v, name](evaluator& e, const arguments& given) {
    return call_method(e, v, name, given);
  };
  return callable_value("method", call, list{{v}}.depth);
}

}  // namespace troupe::gpu::jinja
