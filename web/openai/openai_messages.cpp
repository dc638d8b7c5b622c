#include <algorithm>

#include "text/json/ordered_json.hpp"
#include "web/openai/request_parts.hpp"

namespace troupe::web::openai {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t max_ordered_keys = 256;

/// One key of the body with the order of its objects' keys. Discarded: one has too many.
ordered_json read_in_order(std::string_view body, const std::string& wanted) {
  return gpu::parse_in_order(body, {deepest_json, max_ordered_keys}, wanted)
      .value_or(ordered_json(ordered_json::value_t::discarded));
}

/// Reads one message.
class message_reader {
 public:
  message_reader(const json& m, std::string at) : m_{m}, at_{std::move(at)} {}

  // `developer` is the newer name of `system`; chat templates know the older one.
  parsed<gpu::chat_message> run() {
    if (!m_.is_object()) return invalid(at_, "must be an object");
    const auto role = m_.value("role", json{});
    const bool known = role == "user" || role == "assistant" || role == "system" || role == "tool";
    if (!known && role != "developer")
      return invalid(at_ + ".role", "must be system, developer, user, assistant or tool");
    result_.role = known ? role.get<std::string>() : "system";
    for (const char* key : {"function_call", "audio", "refusal"})
      if (const auto* v = find(key); v && !v->empty() && *v != "")
        return invalid(at_ + "." + key, "is not supported");
    // Mistral's and DeepSeek's servers continue such a message.
    if (const auto* v = find("prefix"); v && *v != false)
      return invalid(at_ + ".prefix", "is not supported: expected 'continue_final_message'");
    auto ok = read_calls();
    if (ok) ok = read_content();
    if (ok) ok = read_further();
    if (!ok) return tl::unexpected{ok.error()};
    return std::move(result_);
  }

  /// Keys that a template gets; the rest of the message is in `text` and `role`.
  static constexpr const char* further[] = {"name", "tool_call_id", "reasoning_content",
                                            "reasoning"};
  bool has_calls() const { return calls_ > 0; }

 private:
  const json* find(const char* key) const {
    const auto it = m_.find(key);
    return it == m_.end() || it->is_null() ? nullptr : &*it;
  }

  parsed<void> read_calls() {
    const auto* v = find("tool_calls");
    if (!v || (v->is_array() && v->empty())) return {};
    const auto key = at_ + ".tool_calls";
    if (!v->is_array() || result_.role != "assistant")
      return invalid(key, "must be a list of an assistant's calls");
    const auto good = [](const json& call) {
      return call.is_object() && call.value("type", json("function")) == "function" &&
             call.contains("function") && call["function"].is_object() &&
             call["function"].value("name", json{}).is_string();
    };
    if (!std::all_of(v->begin(), v->end(), good))
      return invalid(key, "has a call that is not of a function with a name");
    calls_ = v->size();
    return {};
  }

  /// Text, or a list of parts that are text. An assistant that calls tools may have none.
  parsed<void> read_content() {
    const auto* v = find("content");
    const auto key = at_ + ".content";
    if (!v) {
      result_.has_content = false;
      if (calls_ == 0) return invalid(key, "is missing");
      return {};
    }
    if (v->is_string()) {
      result_.text = v->get<std::string>();
      return {};
    }
    if (!v->is_array()) return invalid(key, "must be a string or a list of parts");
    for (const auto& part : *v) {
      if (!part.is_object() || part.value("type", json{}) != "text")
        return invalid(key, "has a part that is not text, which is not supported");
      const auto words = part.value("text", json{});
      if (!words.is_string()) return invalid(key, "has a part without a text");
      result_.parts.push_back(words.get<std::string>());
      result_.text += result_.parts.back();
    }
    return {};
  }

  parsed<void> read_further() {
    json more = json::object();
    // transformers gives a template null where the message has it.
    if (m_.contains("content") && m_["content"].is_null()) more["content"] = nullptr;
    for (const char* key : further) {
      const auto* v = find(key);
      if (!v) continue;
      if (!v->is_string()) return invalid(at_ + "." + key, "must be a string");
      more[key] = *v;
    }
    // The newer name of vLLM.
    if (more.contains("reasoning") && !more.contains("reasoning_content"))
      more["reasoning_content"] = more["reasoning"];
    if (!more.empty()) result_.more = more.dump();
    return {};
  }

  const json& m_;
  const std::string at_;
  gpu::chat_message result_;
  std::size_t calls_ = 0;
};

}  // namespace

// Templates write calls of tools as JSON, in the order of their keys.
parsed<std::vector<gpu::chat_message>> read_messages(const json& all, std::string_view body) {
  if (!all.is_array() || all.empty()) return invalid("messages", "must be a list, not empty");
  std::vector<gpu::chat_message> out;
  ordered_json ordered;
  for (std::size_t i = 0; i < all.size(); ++i) {
    message_reader r{all[i], fmt::format("messages[{}]", i)};
    auto m = r.run();
    if (!m) return tl::unexpected{m.error()};
    if (r.has_calls()) {
      if (ordered.is_null()) ordered = read_in_order(body, "messages");
      if (!ordered.is_array())
        return invalid("messages",
                       fmt::format("has an object of more than {} keys", max_ordered_keys));
      auto more = m->more.empty() ? ordered_json::object() : ordered_json::parse(m->more);
      more["tool_calls"] = std::move(ordered[i]["tool_calls"]);
      m->more = more.dump();
    }
    out.push_back(std::move(*m));
  }
  return out;
}

parsed<std::string> ordered_object(std::string_view body, const std::string& key) {
  const auto d = read_in_order(body, key);
  if (d.is_discarded())
    return invalid(key, fmt::format("has an object of more than {} keys", max_ordered_keys));
  return d.dump();
}

}  // namespace troupe::web::openai
