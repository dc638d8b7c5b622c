#include "gpu/worker/worker_protocol.hpp"

#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "messages/base/refuse.hpp"
#include "messages/base/utf8.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu::python {

namespace {

constexpr std::uint64_t unit_bytes = 64;
constexpr std::uint64_t unit_mask = (std::uint64_t{1} << 28) - 1;

/// A worker's text in an error or a log: valid UTF-8, without control characters, and short.
std::string clean(std::string_view text, std::size_t max_bytes) {
  std::string all;
  while (!text.empty() && all.size() < max_bytes) {
    const auto c = first_character(text);
    const bool shown = c.valid && c.point >= 0x20 && c.point != 0x7f;
    all += shown ? text.substr(0, c.bytes) : " ";
    text.remove_prefix(c.bytes);
  }
  if (!text.empty()) all += "...";
  return all;
}

/// The members of a worker's JSON object. The first that is wrong is the error.
class fields {
 public:
  fields(const nlohmann::json& from, const char* whose) : from_{from}, whose_{whose} {}

  std::string text(const char* name, std::size_t max_bytes = 200) {
    const auto* v = find(name);
    if (v == nullptr) return {};
    if (!v->is_string()) return failure(name, "a text"), std::string{};
    return clean(v->get_ref<const std::string&>(), max_bytes);
  }
  std::uint64_t number(const char* name,
                       std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) {
    const auto* v = find(name);
    if (v == nullptr) return 0;
    const bool ok = v->is_number_unsigned() && v->get<std::uint64_t>() <= max;
    if (!ok) failure(name, fmt::format("a whole number up to {}", max));
    return ok ? v->get<std::uint64_t>() : 0;
  }
  bool flag(const char* name) {
    const auto* v = find(name);
    if (v != nullptr && !v->is_boolean()) failure(name, "true or false");
    return v != nullptr && v->is_boolean() && v->get<bool>();
  }
  /// null: there is none.
  const nlohmann::json* list(const char* name) {
    const auto* v = find(name);
    if (v == nullptr || v->is_array()) return v;
    failure(name, "a list");
    return nullptr;
  }
  const std::optional<reason>& error() const { return error_; }

 private:
  const nlohmann::json* find(const char* name) {
    const auto found = from_.is_object() ? from_.find(name) : from_.end();
    if (from_.is_object() && found != from_.end()) return &*found;
    failure(name, "it to be there");
    return nullptr;
  }
  void failure(const char* name, std::string_view wanted) {
    if (!error_)
      error_ = because(reason::kind::malformed, "the worker's {}: '{}': expected {}", whose_, name,
                       wanted);
  }

  const nlohmann::json& from_;
  const char* whose_;
  std::optional<reason> error_;
};

expected<nlohmann::json> parse(std::string_view body, const char* whose) {
  auto parsed = parse_json(body, fmt::format("the worker's {}", whose));
  if (!parsed) return refuse(reason::kind::malformed, parsed.error().text);
  return parsed;
}

template <class Header>
std::string encoded(Header h, std::string_view body) {
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  std::string all(header_bytes, '\0');
  std::memcpy(all.data(), &h, header_bytes);
  return all.append(body);
}

const char* name_of(worker_stage::recompute r) {
  switch (r) {
    case worker_stage::recompute::none:
      return "none";
    case worker_stage::recompute::stage:
      return "stage";
    case worker_stage::recompute::layers:
      return "layers";
  }
  return "none";
}

constexpr std::uint64_t max_memory = std::uint64_t{1} << 48;

expected<std::vector<layer_facts>> read_layers(const nlohmann::json& list) {
  std::vector<layer_facts> all;
  for (const auto& l : list) {
    fields f{l, "answer to setup"};
    all.push_back({f.text("name"), f.number("parameter_bytes", max_memory),
                   f.number("buffer_bytes", max_memory)});
    if (f.error()) return refuse(*f.error());
  }
  return all;
}

expected<worker_stage_ready> read_stage(const nlohmann::json& from, const worker_stage& setup) {
  fields f{from, "answer to setup"};
  worker_stage_ready m;
  m.own_parameters = f.number("own_parameters", max_buffer / sizeof(float));
  m.tied_parameters = f.number("tied_parameters", max_buffer / sizeof(float));
  m.optimizer_state_bytes = f.number("optimizer_state_bytes", max_memory);
  m.needs_norm = f.flag("needs_norm");
  const auto* list = f.list("layers");
  if (f.error()) return refuse(*f.error());
  auto layers = read_layers(*list);
  if (!layers) return refuse(layers.error());
  m.layers = std::move(*layers);
  if (m.layers.size() == setup.layers) return m;
  return refuse(reason::kind::malformed, "the worker made {} layers, expected {}", m.layers.size(),
                setup.layers);
}

/// "layer 3 (Block): ", the name of a function, or nothing.
std::string layer_of(const nlohmann::json& error) {
  const auto layer = error.find("layer"), name = error.find("layer_name");
  const bool numbered = layer != error.end() && layer->is_number_unsigned();
  const bool named = name != error.end() && name->is_string();
  const auto text = named ? clean(name->get<std::string>(), 100) : std::string{};
  if (!numbered) return text.empty() ? "" : text + ": ";
  return fmt::format("layer {}{}: ", layer->get<std::uint64_t>(),
                     text.empty() ? "" : fmt::format(" ({})", text));
}

/// " (gpt.py:41)", or nothing.
std::string place_of(const nlohmann::json& error) {
  const auto file = error.find("file"), line = error.find("line");
  if (file == error.end() || !file->is_string()) return {};
  if (line == error.end() || !line->is_number_unsigned()) return {};
  const auto path = file->get<std::string>();
  return fmt::format(" ({}:{})", clean(path.substr(path.rfind('/') + 1), 100),
                     line->get<std::uint64_t>());
}

}  // namespace

std::string_view name_of(message_kind k) {
  switch (k) {
    case message_kind::hello:
      return "hello";
    case message_kind::done:
      return "done";
    case message_kind::error:
      return "error";
    case message_kind::setup:
      return "setup";
    case message_kind::start:
      return "start";
    case message_kind::region:
      return "region";
    case message_kind::forward:
      return "forward";
    case message_kind::recompute:
      return "recompute";
    case message_kind::backward:
      return "backward";
    case message_kind::gradients:
      return "gradients";
    case message_kind::norms:
      return "norms";
    case message_kind::update:
      return "update";
    case message_kind::save:
      return "save";
    case message_kind::load:
      return "load";
    case message_kind::group:
      return "group";
    case message_kind::join:
      return "join";
    case message_kind::sum:
      return "sum";
    case message_kind::weights:
      return "weights";
    case message_kind::peak:
      return "peak";
    case message_kind::reset:
      return "reset";
    case message_kind::zero:
      return "zero";
    case message_kind::output:
      return "output";
    case message_kind::stop:
      return "stop";
  }
  return "unknown";
}

std::uint64_t packed(const buffer_place& p) {
  return std::uint64_t{p.region} << 56 | (p.offset / unit_bytes & unit_mask) << 28 |
         (p.bytes / unit_bytes & unit_mask);
}

buffer_place unpacked(std::uint64_t n) {
  return {static_cast<std::uint32_t>(n >> 56), (n >> 28 & unit_mask) * unit_bytes,
          (n & unit_mask) * unit_bytes};
}

std::string encode(request_header h, std::string_view body) {
  return encoded(h, body);
}

std::string encode(reply_header h, std::string_view body) {
  return encoded(h, body);
}

expected<reply> decode_reply(std::string_view datagram) {
  if (datagram.size() < header_bytes)
    return refuse(reason::kind::malformed, "the worker sent {} bytes, expected {} at least",
                  datagram.size(), header_bytes);
  reply r;
  std::memcpy(&r.header, datagram.data(), header_bytes);
  r.body = datagram.substr(header_bytes);
  const auto kind = r.header.kind;
  if (kind != message_kind::hello && kind != message_kind::done && kind != message_kind::error)
    return refuse(reason::kind::malformed,
                  "the worker sent a message of kind {}, expected hello, done or error",
                  static_cast<int>(kind));
  if (r.header.body_bytes != r.body.size())
    return refuse(reason::kind::malformed, "the worker sent a body of {} bytes, its header says {}",
                  r.body.size(), r.header.body_bytes);
  if ((r.header.flags & ~reply_flag::all) != 0)
    return refuse(reason::kind::malformed, "the worker's reply has unknown flags {}",
                  r.header.flags);
  return r;
}

namespace {

expected<void> check_output(const reply_header& r, const request_header& to) {
  if (r.out == 0 && (r.flags & reply_flag::larger) == 0) return {};
  const auto found = unpacked(r.out), given = unpacked(to.out);
  if (given.bytes == 0)
    return refuse(reason::kind::malformed, "the worker's reply to {} has an output, expected none",
                  name_of(to.kind));
  if ((r.flags & reply_flag::larger) != 0) {
    if (found.region == 0 && found.offset == 0 && found.bytes > given.bytes) return {};
    return refuse(reason::kind::malformed,
                  "the worker asks for a buffer of {} bytes, expected more than the {} that it has",
                  found.bytes, given.bytes);
  }
  if (found.region == given.region && found.offset == given.offset && found.bytes > 0 &&
      found.bytes <= given.bytes)
    return {};
  return refuse(reason::kind::malformed,
                "the worker's reply to {} has an output of {} bytes at {} of region {}, expected "
                "up to {} bytes at {} of region {}",
                name_of(to.kind), found.bytes, found.offset, found.region, given.bytes,
                given.offset, given.region);
}

}  // namespace

expected<void> check_reply(const reply& r, const request_header& to) {
  const auto& h = r.header;
  if (h.kind == message_kind::hello)
    return refuse(reason::kind::malformed, "the worker sent a second hello");
  if (h.sequence != to.sequence || h.stage != to.stage)
    return refuse(reason::kind::malformed,
                  "the worker replied to message {} of stage {}, expected message {} of stage {}",
                  h.sequence, h.stage, to.sequence, to.stage);
  if (h.kind == message_kind::error) {
    if (h.flags == 0 && h.out == 0) return {};
    return refuse(reason::kind::malformed, "the worker's error has flags {} and an output {}",
                  h.flags, h.out);
  }
  if ((h.flags & reply_flag::more) != 0 && to.kind != message_kind::save)
    return refuse(reason::kind::malformed, "the worker replies twice to {}", name_of(to.kind));
  if ((h.flags & reply_flag::skipped) != 0 && to.kind != message_kind::update)
    return refuse(reason::kind::malformed, "the worker skips a {}", name_of(to.kind));
  if ((h.flags & reply_flag::moved) != 0 && to.kind != message_kind::zero)
    return refuse(reason::kind::malformed, "the worker has moved buffers by a {}",
                  name_of(to.kind));
  return check_output(h, to);
}

expected<worker_hello> read_hello(std::string_view body) {
  auto parsed = parse(body, "hello");
  if (!parsed) return refuse(parsed.error());
  fields f{*parsed, "hello"};
  worker_hello h;
  h.protocol = static_cast<std::uint32_t>(f.number("protocol", 0xffffffff));
  h.token = f.text("token");
  h.package = f.text("package");
  h.python = f.text("python");
  h.torch = f.text("torch");
  h.cuda = f.text("cuda");
  h.blas = f.text("blas");
  h.pid = f.number("pid", 0x7fffffff);
  if (f.error()) return refuse(*f.error());
  if (h.protocol != protocol_version)
    return refuse(reason::kind::infeasible,
                  "the worker of package troupe {} has protocol {}, this node has {}", h.package,
                  h.protocol, protocol_version);
  return h;
}

std::string setup_body(const layer_file_setup& p, const std::vector<worker_stage>& members) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& m : members) {
    all.push_back({{"first_layer", m.first_layer},
                   {"layers", m.layers},
                   {"stage", m.stage},
                   {"stages", m.stages},
                   {"pipeline", m.pipeline},
                   {"pipelines", m.pipelines},
                   {"rows", m.rows},
                   {"microbatches", m.microbatches},
                   {"seed", m.seed},
                   {"recompute", name_of(m.how)}});
    if (m.share) all.back()["share"] = {m.share->first, m.share->second};
  }
  const nlohmann::ordered_json j{
      {"file", p.file},
      {"sha256", p.sha256},
      {"arguments", nlohmann::ordered_json::parse(p.arguments, nullptr, false)},
      {"device", p.device},
      {"threads", p.threads},
      {"deterministic", p.deterministic},
      {"members", all}};
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string start_body(std::uint64_t lease) {
  return nlohmann::ordered_json{{"lease", lease}}.dump();
}

expected<std::vector<worker_stage_ready>> read_ready(std::string_view body,
                                                     const std::vector<worker_stage>& members) {
  auto parsed = parse(body, "answer to setup");
  if (!parsed) return refuse(parsed.error());
  fields f{*parsed, "answer to setup"};
  const auto* list = f.list("members");
  if (f.error()) return refuse(*f.error());
  if (list->size() != members.size())
    return refuse(reason::kind::malformed, "the worker has {} stages, expected {}", list->size(),
                  members.size());
  std::vector<worker_stage_ready> all;
  for (std::size_t i = 0; i < members.size(); ++i) {
    auto read = read_stage((*list)[i], members[i]);
    if (!read) return refuse(read.error());
    all.push_back(std::move(*read));
  }
  return all;
}

reason read_error(std::string_view body) {
  auto parsed = parse(body, "error");
  if (!parsed) return parsed.error();
  fields f{*parsed, "error"};
  const auto type = f.text("type", 100), message = f.text("message", 1000),
             cause = f.text("cause", 100);
  if (f.error()) return *f.error();
  const auto code = cause == "out_of_memory" ? reason::kind::out_of_memory : reason::kind::invalid;
  return because(code, "{}{}{}{}", layer_of(*parsed), type.empty() ? "" : type + ": ", message,
                 place_of(*parsed));
}

std::string path_body(const std::string& path, bool whole) {
  nlohmann::ordered_json body{{"path", path}};
  if (whole) body["whole"] = true;
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

expected<std::vector<named_value>> read_values(std::string_view body) {
  constexpr std::size_t max = 256;
  std::vector<named_value> all;
  if (body.empty()) return all;
  auto parsed = parse(body, "values");
  if (!parsed) return refuse(parsed.error());
  fields f{*parsed, "values"};
  const auto* list = f.list("values");
  if (f.error()) return refuse(*f.error());
  // Python's JSON cannot say that a number is not finite.
  const auto number = [](const nlohmann::json& v) {
    return v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.get<double>();
  };
  const auto is_number = [](const nlohmann::json& v) { return v.is_null() || v.is_number(); };
  for (const auto& v : *list) {
    if (!v.is_array() || v.size() != 3 || !v[0].is_string() || !is_number(v[1]) ||
        !is_number(v[2]) || all.size() == max)
      return refuse(reason::kind::malformed,
                    "the worker's values: value {}: expected a name and two numbers, {} times at "
                    "most",
                    all.size(), max);
    all.push_back({clean(v[0].get<std::string>(), 200), number(v[1]), number(v[2])});
  }
  return all;
}

expected<std::vector<double>> read_numbers(std::string_view body, std::size_t count) {
  if (body.size() != count * sizeof(double))
    return refuse(reason::kind::malformed, "the worker sent {} bytes of norms, expected {}",
                  body.size(), count * sizeof(double));
  std::vector<double> all(count);
  if (count > 0) std::memcpy(all.data(), body.data(), body.size());
  return all;
}

}  // namespace troupe::gpu::python
