#pragma once

#include <string>

#include "messages/wire/client.hpp"
#include "messages/wire/stage.hpp"

// The controller's replies as JSON, for the dashboard: pure functions. Keys are those of the verbs'
// --json where they have the same meaning. Unknown values, and numbers that are not finite, are
// null; text that is not UTF-8 is repaired.

namespace troupe::web::dashboard_json {

/// {name, policy, now_s, scheduling, datacenters: [{name, gateway_present, nodes: [{name, gpu,
/// present, gpus, idle, holders: [{job, name, gpus}]}]}]}
std::string cluster(const query_reply& r);

/// {now_s, jobs: [...]}
std::string jobs(const query_reply& r);

/// One job of jobs(); empty: it is not in the reply.
std::string job(const query_reply& r, job_id id);

/// {job, name, state, reason, metric, placement: [], plans: [], memory: []}
std::string explain(const explanation& e);

/// {job, reason, position, schedule, ..., events: [], iterations: [{iteration, loss, gradient_norm,
/// begin_s, end_s, busy_s, guest_s}], bubbles: {guest_steps, guest_s, delayed_steps, delay_s,
/// worst_delay_s, delay_p99_s, guard_s, paused, idle_s}}; reason: why there is no report, or null;
/// bubbles: null: they are not lent.
std::string training(const training_reply& r);

/// {job, iteration, length_s, rows: [{pipeline, stage, node, datacenter, devices, busy_s: {what:
/// s}, spans: [{what, microbatch, begin_s, end_s}]}]}; without a timeline no rows. Spans that end
/// before they begin are left out.
std::string timeline(const training_reply& r, const query_reply& cluster);

/// {links: [{from, to, rtt_ms, gbps, emulated, bytes, bytes_s}]}, one for each direction, of all
/// links of the cluster file and all others that were used. `before`: an earlier reply, for
/// bytes_s; null: that is not known.
std::string links(const query_reply& now, const query_reply* before);

/// {fronts: [{name, present, requests, finished, cancelled, declined, failed, retries, tokens,
/// prefills: {bubbles, decoders, yields}, ttft_p50_s, ttft_p99_s}], decoders: [{node, datacenter,
/// lease, model, context, pages, free_pages, running, waiting, ending}]}; decoders: those that a
/// present front knows.
std::string serving(const query_reply& r);

/// {error: {message}}
std::string error(const std::string& sentence);

/// {present, reason, since_s}: is there a controller that answers?
std::string source(const std::string& why_absent, double absent_s);

}  // namespace troupe::web::dashboard_json
