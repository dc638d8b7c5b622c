#include "actors/control/leases/served_jobs.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

namespace {

/// The model that a training lends its bubbles to; null: it lends none.
const served_model_files* lent_model(const job_spec& s) {
  return facts_of(s).has_stages && s.pipeline.bubbles ? &s.pipeline.bubbles->model : nullptr;
}

std::string weights_of(const served_model_files& m) {
  return m.random_weights ? fmt::format("random weights {}", *m.random_weights)
                          : std::string{"the folder's weights"};
}

/// The first difference; empty: there is none.
std::string difference(const served_model_files& has, const served_model_files& asked) {
  if (has.folder != asked.folder)
    return fmt::format("from {}, and this job names {}", has.folder, asked.folder);
  if (has.random_weights != asked.random_weights)
    return fmt::format("with {}, and this job asks for {}", weights_of(has), weights_of(asked));
  if (!has.same_files(asked))
    return fmt::format("from {} as it was then, and config.json or the weights have changed",
                       has.folder);
  return {};
}

}  // namespace

void served_jobs::add(const job_record& j) {
  if (!is_final(j.state) && (j.spec->serve || lent_model(*j.spec))) jobs_.insert(j.id);
}

/// The oldest unfinished job that serves this name; null: there is none.
const job_record* served_jobs::owner_of(const ledger& book, const std::string& model) const {
  for (const auto id : jobs_)
    if (const auto* j = book.job(id);
        j && !is_final(j->state) && j->spec->serve && j->spec->serve->model.name == model)
      return j;
  return nullptr;
}

/// Requests choose adapters by names, as models: each name is one of them.
expected<void> served_jobs::may_have_names(const ledger& book, const serving& asked) const {
  const auto taken = [](job_id id, const std::string& name, const char* by) {
    return refuse(reason::kind::invalid,
                  "'{}' is the name of {} that job {} serves: a name has one model; choose another",
                  name, by, id);
  };
  for (const auto id : jobs_) {
    const auto* j = book.job(id);
    if (!j || is_final(j->state) || !j->spec->serve) continue;
    const auto& other = *j->spec->serve;
    for (const auto& b : other.adapters.value_or(std::vector<served_adapter>{})) {
      if (b.name == asked.model.name) return taken(id, b.name, "an adapter");
      for (const auto& a : asked.adapters.value_or(std::vector<served_adapter>{}))
        if (a.name == b.name && (a.hash != b.hash || other.model.name != asked.model.name))
          return taken(id, b.name, "another adapter");
    }
    for (const auto& a : asked.adapters.value_or(std::vector<served_adapter>{}))
      if (a.name == other.model.name) return taken(id, a.name, "a model");
  }
  return {};
}

/// Checked at submission. A name that two models had would send a client's prompts to whichever
/// decoder is free.
expected<void> served_jobs::may_serve(const ledger& book, const job_spec& spec,
                                      const std::string& owner) const {
  const auto* asked = spec.serve ? &spec.serve->model : lent_model(spec);
  if (!asked) return {};
  if (spec.serve)
    if (auto ok = may_have_names(book, *spec.serve); !ok) return ok;
  const auto* j = owner_of(book, asked->name);
  if (!j) return {};
  if (spec.serve && j->owner != owner)
    return refuse(reason::kind::refused,
                  "model '{}' is served by job {} of {}: a name has one owner; serve "
                  "yours under another `name`",
                  asked->name, j->id, j->owner);
  const auto why = difference(j->spec->serve->model, *asked);
  if (why.empty()) return {};
  return refuse(reason::kind::invalid,
                "model '{}' is served by job {} {}: a name has one model; choose "
                "another `name`, or cancel job {} first",
                asked->name, j->id, why, j->id);
}

/// Complete each time, like orders: fronts and gateways replace what they know, so none can be lost
/// for good.
serving_leases served_jobs::statement(const ledger& book) {
  std::erase_if(jobs_, [&](job_id id) {
    const auto* j = book.job(id);
    return !j || is_final(j->state);
  });
  serving_leases all;
  const auto index_of = [&](const std::string& name) {
    const auto at = std::ranges::find(all.models, name, &served_model_files::name);
    return static_cast<std::size_t>(at - all.models.begin());
  };
  for (const auto id : jobs_) {
    const auto& j = *book.job(id);
    TROUPE_INVARIANT(j.spec->serve || lent_model(*j.spec), "a job that is served from has a model");
    if (!j.spec->serve) continue;
    const auto& m = j.spec->serve->model;
    const auto model = index_of(m.name);
    if (model == all.models.size()) all.models.push_back(m);
    const auto* l = book.lease(j.lease);
    if (!l || l->ended.front() || !all.models[model].same_files(m)) continue;
    TROUPE_INVARIANT(model < all.models.size(), "a decoder's model is one of the statement's");
    const auto& part = l->granted.parts.front();
    all.decoders.push_back(
        {j.lease, part.node, part.incarnation, static_cast<std::uint32_t>(model)});
  }
  for (const auto id : jobs_) {
    const auto& j = *book.job(id);
    const auto* m = lent_model(*j.spec);
    const auto* l = book.lease(j.lease);
    if (!m || !l) continue;
    const auto model = index_of(m->name);
    if (model < all.models.size() && !all.models[model].same_files(*m)) continue;
    lending_lease lends{j.lease, {}, m->name};
    for (const auto& part : l->granted.parts) lends.nodes.push_back(part.node);
    all.lendings.push_back(std::move(lends));
  }
  return all;
}

}  // namespace troupe::actors
