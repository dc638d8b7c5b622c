#include "cli/verbs/serving/end_in_order.hpp"

#include "cli/output/interrupt.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/wait.hpp"

namespace troupe::cli {

void end_in_order(const output& out, web::service& s, web::http_server& server, double grace_s) {
  constexpr double every_s = 0.02, write_s = 2;
  interrupt again;
  s.drain();
  server.close_after_answers();
  if (const auto left = s.requests(); left > 0)
    out.note("answers {} requests to their end, for at most {:g} s; a second signal ends them",
             left, grace_s);
  const auto done = [&] { return s.requests() == 0 && server.answering() == 0; };
  runtime::wait_until([&] { return done() || again.arrived(); }, grace_s, every_s);
  s.end_all("the server has ended before the end of this answer");
  runtime::wait_until([&] { return server.answering() == 0; }, write_s, every_s);
}

}  // namespace troupe::cli
