#pragma once

#include <nlohmann/json.hpp>

#include "messages/wire/client.hpp"

// Jobs as JSON, for the dashboard and for `--json`. Unknown values are null.

namespace troupe::web {

nlohmann::ordered_json plan_document(const plan& p);
/// A job of a reply, with the names of the reply's nodes.
nlohmann::ordered_json job_document(const query_reply& r, const job_status& j);
/// Why the job, or the last attempt of a waiting one, has ended, as keys of its document: `why`,
/// `ends` with its latest attempts, and the wait before its next one.
void add_ends(nlohmann::ordered_json& job, const std::vector<node_status>& nodes,
              const job_status& j);
nlohmann::ordered_json explanation_document(const explanation& e);

/// [{what, on_device, number}]: what pages need to draw tasks, by task_kind; number: what a task's
/// `microbatch` counts, or null.
nlohmann::ordered_json task_kinds_document();

/// Does it have GPUs, or had it at its end? A waiting job has none.
bool is_placed(const job_status& j);

}  // namespace troupe::web
