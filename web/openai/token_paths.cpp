#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "web/openai/service.hpp"

// Texts to tokens and back, as vLLM's paths do it.

namespace troupe::web {

using openai::problem;

service::offer_ptr service::named_or_only(const std::string& name) const {
  if (!name.empty()) return find(name);
  const auto there = all();
  const bool one = !there.empty() && std::ranges::all_of(there, [&](const auto& o) {
    return o->by == there.front()->by;
  });
  return one ? there.front() : nullptr;
}

// Longer ones would hold up others' prompts.
std::optional<problem> service::refusal_of_text(const http_request& r) const {
  constexpr std::size_t max_bytes = 1 << 20;
  if (auto why = refusal_of_body(r)) return why;
  if (r.body.size() <= max_bytes) return {};
  return problem{413, fmt::format("the body is longer than {} bytes", max_bytes)};
}

// On the encoder's thread, as prompts are.
void service::tokenize(const http_request& r, const std::shared_ptr<http_reply>& reply) {
  const auto refuse = [reply](const problem& p) { reply->whole(answer_of(p, fields_of(p))); };
  if (const auto why = refusal_of_text(r)) return refuse(*why);
  auto asked = openai::parse_tokenize(r.body);
  if (!asked) return refuse(asked.error());
  const auto to = named_or_only(asked->what.model);
  if (!to) return refuse(unknown_model(asked->what.model));
  const bool chat = asked->what.chat;
  encoders_.soon(to->model.name, chat, [asked = std::move(*asked), to, reply, refuse] {
    const auto all = first_prompt_of(asked.what, to->model);
    if (!all) return refuse(all.error());
    std::optional<std::vector<std::string>> texts;
    if (asked.texts) texts.emplace();
    for (std::size_t i = 0; texts && i < all->size(); ++i)
      texts->push_back(to->model.words->written((*all)[i]));
    const auto context = std::min(to->model.model.positions, to->by->state().longest);
    reply->whole({200, "application/json", openai::tokenize_json(*all, context, texts), {}});
  });
}

void service::detokenize(const http_request& r, const std::shared_ptr<http_reply>& reply) {
  const auto refuse = [&](const problem& p) { reply->whole(answer_of(p, fields_of(p))); };
  if (const auto why = refusal_of_text(r)) return refuse(*why);
  const auto asked = openai::parse_detokenize(r.body);
  if (!asked) return refuse(asked.error());
  const auto to = named_or_only(asked->model);
  if (!to) return refuse(unknown_model(asked->model));
  if (!to->model.words) return refuse({400, "the model has no tokenizer"});
  const auto text = to->model.words->decode(asked->all);
  reply->whole({200, "application/json", openai::detokenize_json(text), {}});
}

}  // namespace troupe::web
