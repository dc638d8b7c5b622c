#include "cli/output/examples.hpp"

#include <map>

#include <fmt/format.h>

namespace troupe::cli {

namespace {

/// Commands as typed in a checkout. Some verbs have their own examples.
const std::map<std::string_view, std::string_view>& examples() {
  static const std::map<std::string_view, std::string_view> all = {
      {"demo", "troupe demo --out /tmp/demo"},
      {"up", "troupe up configs/clusters/demo.yaml --detach"},
      {"down", "troupe down"},
      {"version", "troupe version --json"},
      {"submit",
       "troupe submit configs/jobs/hello.yaml --wait\n"
       "  troupe submit --model gpt2-350m --batch 8 -- torchrun train.py --epochs 3"},
      {"queue", "troupe queue\n  troupe queue --json"},
      {"status", "troupe status\n  troupe status 1 --json"},
      {"explain", "troupe explain 1"},
      {"logs",
       "troupe logs 1 -f\n  troupe logs 1 --tail 20\n  troupe logs 1 --all\n"
       "  troupe logs 1 --attempt 1 --rank 3"},
      {"wait", "troupe wait 3 4 && troupe submit next.yaml"},
      {"export", "troupe export out/checkpoint out/my-gpt"},
      {"cancel", "troupe cancel 1\n  troupe cancel --mine --states waiting"},
      {"suspend", "troupe suspend 1\n  troupe suspend --name 'sweep-*'"},
      {"resume", "troupe resume 1"},
      {"requeue", "troupe requeue 1"},
      {"move", "troupe move 1 --stages 2\n  troupe move 1 --nodes north-1,north-2"},
      {"train",
       "troupe train configs/jobs/train-two-stages.yaml\n"
       "  troupe train configs/jobs/figure6.yaml --schedule varuna --against atlas --picture "
       "figure6.html"},
      {"infer",
       "troupe infer \"The President\" --alone --model configs/models/scribe --max-tokens 64"},
      {"describe",
       "troupe describe examples/pytorch/gpt.py\n"
       "  troupe describe examples/pytorch/gpt.py --arguments layers=8 --out gpt8.yaml"},
      {"profile",
       "troupe profile --model configs/models/gpt2-124m.yaml --rows 1,2 --out here.yaml"},
      {"plan",
       "troupe plan configs/jobs/gpt2-7b.yaml --cluster configs/clusters/frenzy-testbed.yaml"},
      {"estimate",
       "troupe estimate configs/jobs/llama-7b-slo.yaml --cluster configs/clusters/espresso.yaml "
       "--stages A30:6,A6000:13,A6000:13,A6000:13,A6000:13"},
      {"whatif",
       "troupe whatif configs/jobs/atlas-sixty.yaml --cluster configs/clusters/atlas-sim.yaml"},
      {"simulate",
       "troupe simulate --cluster configs/clusters/frenzy-sim.yaml --trace "
       "configs/traces/philly-day.csv --policy frenzy,fcfs --out out/day\n"
       "  troupe simulate --cluster configs/clusters/demo.yaml --trace "
       "configs/traces/philly-6h.csv --faults configs/faults/lossy.yaml"},
      {"serve",
       "troupe serve configs/models/scribe --port 8000\n"
       "  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d "
       "'{\"model\": \"scribe\", \"prompt\": \"The President\"}'"},
      {"dashboard", "troupe dashboard --port 8080"},
      {"check", "troupe check my-job.yaml my-cluster.yaml\n  troupe check - < my-job.yaml"},
      {"trace", "troupe trace import philly cluster_job_log --out philly.csv"},
      {"keys", "troupe keys make keys --cluster configs/clusters/demo.yaml"},
      {"controller",
       "troupe controller --cluster cluster.yaml --state /var/lib/troupe --listen "
       "tcp://0.0.0.0:7000"},
      {"gateway",
       "troupe gateway --cluster cluster.yaml --state /var/lib/troupe --datacenter north --listen "
       "tcp://0.0.0.0:7001 --controller tcp://10.0.0.1:7000"},
      {"reconfigure", "troupe reconfigure cluster.yaml"},
      {"drain", "troupe drain n1 n2\n  troupe drain n1 --stop"},
      {"undrain", "troupe undrain n1"},
      {"node",
       "troupe node --cluster cluster.yaml --state /var/lib/troupe --name n1 --gateway "
       "tcp://10.0.0.2:7001"},
  };
  return all;
}

}  // namespace

std::string examples_of(std::string_view verb) {
  const auto known = examples().find(verb);
  const auto files = "File formats (clusters, jobs, models, traces): docs/files.md.";
  return known == examples().end() ? files
                                   : fmt::format("Example:\n  {}\n\n{}", known->second, files);
}

}  // namespace troupe::cli
