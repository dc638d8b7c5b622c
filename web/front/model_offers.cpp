#include "web/front/model_offers.hpp"

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "messages/base/time.hpp"
#include "runtime/host/log.hpp"
#include "web/front/front_generator.hpp"

namespace troupe::web {

/// The state that readers' threads share with the server, which they may outlive.
struct model_offers::shared {
  /// Where a model's files are, and which files these are.
  struct source {
    std::string folder;
    std::uint64_t files = 0;
    bool operator==(const source&) const = default;
  };

  struct wanted_model {
    source from;
    bool failed = false;
    double failed_s = never;  // seen by look()
  };

  std::mutex mutex;
  std::map<std::string, wanted_model> wanted;         // by name
  std::deque<std::pair<std::string, source>> unread;  // some of them
  std::set<std::string> reading;                      // folders; each has a thread
  // Those that were read, and the names of their adapters that are offered.
  std::map<std::string, std::pair<served_model, std::set<std::string>>> offered;
  // Empty: the server has ended. With the adapters' names in place of the model's.
  std::function<void(served_model)> offer;
  std::function<void(const std::string&)> withdraw;

  /// Offers these adapters of a model that is offered, and withdraws its others.
  void offer_adapters(const std::string& model, const std::set<std::string>& now) {
    const auto at = offered.find(model);
    if (at == offered.end()) return;
    auto& [m, has] = at->second;
    std::erase_if(has, [&](const auto& name) {
      const bool gone = !now.contains(name);
      if (gone) withdraw(name);
      return gone;
    });
    for (const auto& name : now) {
      // A model's name is its own.
      if (wanted.contains(name) || !has.insert(name).second) continue;
      auto adapted = m;
      adapted.name = name;
      adapted.parent = model;
      offer(std::move(adapted));
    }
  }

  /// One of `unread` whose folder no thread reads: a folder on a network that hangs blocks one
  /// thread, however often its model is wanted.
  std::optional<std::pair<std::string, source>> take() {
    for (auto at = unread.begin(); at != unread.end(); ++at) {
      if (reading.contains(at->second.folder)) continue;
      auto next = std::move(*at);
      unread.erase(at);
      return next;
    }
    return std::nullopt;
  }

  // On a thread of its own. What was read counts only if the model is still wanted from these
  // files.
  static void read_one(const std::shared_ptr<shared>& s, const std::string& name,
                       const source& from) {
    auto m = read_served_model(name, from.folder);
    const std::lock_guard hold{s->mutex};
    s->reading.erase(from.folder);
    if (!s->offer) return;
    const auto at = s->wanted.find(name);
    if (at == s->wanted.end() || at->second.from != from) return;  // it has changed meanwhile
    if (!m) {
      at->second.failed = true;
      runtime::log(runtime::log_level::error, "serve", "cannot offer a model; give its --model",
                   {{"name", name}, {"why", m.error().text}});
      return;
    }
    if (const auto& problem = m->chats.problem(); !problem.empty())
      runtime::log(runtime::log_level::warn, "serve",
                   "refuses chats of a model, but not completions",
                   {{"name", name}, {"why", problem}});
    for (const auto& key : m->model.ignored_keys)
      runtime::log(runtime::log_level::warn, "serve",
                   "does not apply a key of generation_config.json",
                   {{"name", name}, {"key", key}});
    if (!m->words)
      runtime::log(runtime::log_level::warn, "serve", "takes prompts as token numbers alone",
                   {{"name", name}, {"why", m->no_words}});
    s->offered.insert_or_assign(name, std::pair{*m, std::set<std::string>{}});
    s->offer(std::move(*m));
    runtime::log(runtime::log_level::info, "serve", "offers a model",
                 {{"name", name}, {"folder", from.folder}});
  }
};

model_offers::model_offers(actors::completions front, shared_cluster c,
                           std::map<std::string, std::string> folders, const runtime::clock& clock,
                           service& service)
    : front_{front},
      folders_{std::move(folders)},
      clock_{clock},
      shared_{std::make_shared<shared>()} {
  // A model's adapters have its generator, whose state counts once.
  shared_->offer =
      [front = std::move(front), c = std::move(c), &service,
       all = std::map<std::string, std::shared_ptr<front_generator>>{}](served_model m) mutable {
        auto& by = all[m.parent.empty() ? m.name : m.parent];
        if (m.parent.empty() || !by)
          by = std::make_shared<front_generator>(front, c, m.name, m.words);
        service.offer(std::move(m), by);
      };
  shared_->withdraw = [&service](const std::string& name) { service.withdraw(name); };
}

model_offers::~model_offers() {
  const std::lock_guard hold{shared_->mutex};
  shared_->offer = nullptr;
}

// Three steps under one lock: withdraw models that the controller no longer names; want those that
// are new, changed, or due for another try; start readers for wanted ones. Until there is a
// statement of the controller nothing is withdrawn, since a front that has just begun knows too
// little.
void model_offers::look() {
  const auto now = front_.view();
  const auto now_s = clock_.now_s();
  const std::lock_guard hold{shared_->mutex};
  auto& wanted = shared_->wanted;
  const auto drop = [&](const std::string& name) {
    std::erase_if(shared_->unread, [&](const auto& u) { return u.first == name; });
    shared_->offer_adapters(name, {});
    shared_->offered.erase(name);
    shared_->withdraw(name);
  };
  if (now.has_statement)
    std::erase_if(wanted, [&](const auto& w) {
      const bool gone = !now.served.contains(w.first);
      if (gone) drop(w.first);
      return gone;
    });
  for (const auto& [name, m] : now.models) {
    if (now.has_statement && !now.served.contains(name)) continue;
    const auto given = folders_.find(name);
    const shared::source from{given == folders_.end() ? m.folder : given->second, m.files};
    const auto [at, fresh] = wanted.try_emplace(name);
    auto& w = at->second;
    if (w.failed && w.failed_s == never) w.failed_s = now_s;
    const bool changed = !fresh && w.from != from;
    if (!fresh && !changed && !(w.failed && now_s - w.failed_s >= retry_s)) continue;
    // Texts by other files would be wrong.
    if (changed) drop(name);
    w = {from};
    shared_->unread.emplace_back(name, from);
  }
  for (const auto& [name, m] : now.models) shared_->offer_adapters(name, m.adapters);
  while (shared_->reading.size() < max_readers) {
    auto next = shared_->take();
    if (!next) break;
    shared_->reading.insert(next->second.folder);
    std::thread{shared::read_one, shared_, std::move(next->first), std::move(next->second)}
        .detach();
  }
}

}  // namespace troupe::web
