#include <catch2/catch.hpp>

#include "planners/sample.hpp"
#include "planners/scene.hpp"
#include "planners/serving/decoder_memory.hpp"
#include "planners/serving/with_serving.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::same;
using scene_of_policies::scene;

namespace {

job_spec decoder(double kv_gb = 1, std::int32_t priority = 0) {
  job_spec j;
  j.name = "decoder";
  j.priority = priority;
  j.serve.emplace();
  j.serve->kv_gb = kv_gb;
  j.serve->model = {"m", "/m", {}, sample::gpt2_small};
  j.model = sample::gpt2_small;
  return j;
}

std::shared_ptr<const policy> with_decoders(std::string_view name) {
  return with_serving(std::shared_ptr<const policy>{make_policy(name)});
}

/// Four types, of 11, 24, 40 and 80 GB: nodes n0, n1 to n2, n3 to n4, n5.
cluster four_types() {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 2);
  sample::add_nodes(c, sample::rtx2080ti, 2, 4);
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::rtx6000, 1, 1);
  return c;
}

std::vector<decision> decide(const policy& p, const scene& s) {
  random_source r{1};
  return p.decide(s.view(), r);
}

/// Where the decoders start, by job.
std::map<job_id, std::string> places(const policy& p, const scene& s) {
  std::map<job_id, std::string> all;
  for (const auto& d : decide(p, s))
    if (d.what == decision::kind::start) {
      REQUIRE(d.where.size() == 1);
      REQUIRE(d.where[0].gpus == 1);
      all[d.job] = s.cluster.nodes[d.where[0].node].name;
    }
  return all;
}

const std::string needs = "needs more than ", waits = "waits for an idle GPU";

}  // namespace

TEST_CASE("a decoder's memory is its weights in single precision, its cache and its scratch") {
  model m = sample::gpt("m", 64, 2, 4, 512, 256);
  serving s;
  s.model.shape = m;
  s.kv_gb = 0.5;
  s.max_running = 10;
  // A layer has 4 x 64 x 64 + 2 x 64 x 256 weights, 4 x 64 + 256 + 64 biases and two norms of
  // 2 x 64; the model adds embeddings of 256 tokens and 512 positions, and the last norm.
  const double layer = 4 * 64 * 64 + 2 * 64 * 256 + 4 * 64 + 256 + 64 + 4 * 64;
  const double all = 2 * layer + 256 * 64 + 512 * 64 + 2 * 64;
  auto memory = decoder_memory_of(s);
  CHECK(memory.weights == 4 * (all + 256 * 64));  // the tied head once more
  CHECK(memory.cache == 0.5e9);
  CHECK(memory.scratch == 4 * (10 * 256 + 512 * (6 * 64 + 2 * 256)));
  CHECK(memory.total() == memory.weights + memory.cache + memory.scratch);
  s.model.shape.tied_head = false;
  CHECK(decoder_memory_of(s).weights == memory.weights);  // the head is one of its own
}

TEST_CASE("a decoder's plan is one GPU with its memory and the cluster's headroom") {
  auto c = four_types();
  const auto job = decoder(20);
  const auto plans = decoder_plans(c, job);
  REQUIRE(plans);
  REQUIRE(plans->size() == 1);
  CHECK(plans->front().gpus() == 1);
  CHECK(plans->front().bytes_per_gpu == decoder_memory_of(*job.serve).total());
  CHECK(plans->front().gpu_types == std::vector<gpu_index>{0, 2, 3});
  CHECK(plans->front().cost_per_hour == sample::rtx6000.price_per_hour);
  c.settings.memory_headroom = 0.5;
  CHECK(decoder_plans(c, job)->front().gpu_types == std::vector<gpu_index>{0, 2});
  auto bound = job;
  bound.limits.required_gpu_type = "A100-80GB";
  CHECK(decoder_plans(c, bound)->front().gpu_types == std::vector<gpu_index>{0});
}

TEST_CASE("a decoder that no GPU holds is refused with what it needs and what there is") {
  const auto c = four_types();
  const auto large = decoder_plans(c, decoder(90));
  REQUIRE_FALSE(large);
  CHECK(large.error().code == reason::kind::infeasible);
  CHECK_THAT(large.error().text, Catch::Contains(needs) && Catch::Contains("cache 90.00 GB") &&
                                     Catch::Contains("the largest has 80"));
  auto bound = decoder(20);
  bound.limits.required_gpu_type = "RTX2080Ti";
  CHECK_THAT(decoder_plans(c, bound).error().text,
             Catch::Contains("the largest of type RTX2080Ti has 11"));
  bound.limits.required_gpu_type = "H100";
  CHECK_THAT(decoder_plans(c, bound).error().text, Catch::Contains("no node has a GPU of type"));
  // A policy gives such a job up.
  const auto p = with_decoders("frenzy");
  scene s{c};
  s.by = p.get();
  s.add(1, decoder(90));
  const auto d = decide(*p, s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].what == decision::kind::give_up);
  CHECK(d[0].why == large.error());
  CHECK(scene_of_policies::why_of(*p, s, 1) == large.error());
}

TEST_CASE("decoders take the smallest sufficient memory, then the fullest node, then its name") {
  const auto p = with_decoders("frenzy");
  scene s{four_types()};
  s.by = p.get();
  s.add(1, decoder(1));
  CHECK(places(*p, s)[1] == "n1");  // of 11 GB; n2 is as empty
  s.idle.set_idle(2, 2);
  CHECK(places(*p, s)[1] == "n2");  // fewer idle GPUs
  s.idle.set_idle(1, 0), s.idle.set_idle(2, 0);
  CHECK(places(*p, s)[1] == "n5");  // of 24 GB
  s.add(2, decoder(20)), s.add(3, decoder(20));
  const auto three = places(*p, s);  // one each, as there is one of 24 GB
  CHECK(three.at(1) == "n5");
  CHECK(three.at(2) == "n3");
  CHECK(three.at(3) == "n3");
  s.add(4, decoder(20, 7));
  CHECK(places(*p, s).at(4) == "n5");  // the larger priority first
  CHECK(places(*p, s).at(1) == "n3");
}

TEST_CASE("a decoder without an idle GPU waits and stops nobody") {
  const auto p = with_decoders("fcfs");
  scene s{four_types()};
  s.by = p.get();
  auto job = decoder(20);
  job.limits.required_gpu_type = "A100-40GB";
  s.add(1, job);
  s.idle.set_idle(3, 0), s.idle.set_idle(4, 0);
  CHECK(decide(*p, s).empty());
  const auto why = scene_of_policies::why_of(*p, s, 1);
  CHECK(why.code == reason::kind::insufficient);
  CHECK_THAT(why.text, Catch::Contains(waits + " of type A100-40GB with more than 20."));
  s.idle.set_idle(4, 1);
  CHECK(places(*p, s)[1] == "n4");
  CHECK_THAT(scene_of_policies::why_of(*p, s, 1).text, Catch::Contains("about to start"));
}

TEST_CASE("a decoder that ran out of memory where it fit by the prediction is given up") {
  const auto p = with_decoders("fcfs");
  scene s{four_types()};
  s.by = p.get();
  auto& j = s.add(1, decoder(1));
  j.history.out_of_memory = 1;
  j.history.bytes_floor = j.plans->front().bytes_per_gpu;
  const auto d = decide(*p, s);
  REQUIRE(d.size() == 1);
  CHECK(d[0].what == decision::kind::give_up);
  CHECK_THAT(d[0].why.text, Catch::Contains("ran out of memory"));
}

TEST_CASE(
    "under every policy decoders start first, and the policy sees neither them nor their GPUs") {
  for (const auto name : policy_names()) {
    DYNAMIC_SECTION(name) {
      const std::shared_ptr<const policy> alone{make_policy(name)};
      const auto p = with_serving(alone);
      CHECK(p->name() == name);
      CHECK(p->traits().round_s == alone->traits().round_s);
      CHECK(p->traits().plans_by_request == alone->traits().plans_by_request);
      std::size_t started = 0, others = 0;
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        random_source r{seed};
        scene s{sample::random_cluster(r)};
        s.by = p.get();
        sample::random_idle(s.idle, s.cluster, r);
        const auto jobs = 1 + r.below(6);
        for (job_id id = 1; id <= jobs; ++id)
          s.add(id, sample::job(sample::gpt2_small, 1u << r.below(5), 1u << r.below(3)));
        const auto twin = random_source{seed};
        // Without decoders: the policy's own decisions, to the last random number.
        auto r1 = twin, r2 = twin;
        const auto before = p->decide(s.view(), r1);
        REQUIRE(same(before, alone->decide(s.view(), r2)));
        REQUIRE(r1.state() == r2.state());
        CHECK(p->decide_again_s(s.view()) == alone->decide_again_s(s.view()));
        const auto bare = s;
        // One decoder runs, some wait.
        if (const auto p0 = s.idle.total_idle(); p0 > 0) {
          auto& d = s.add(100, decoder(1));
          node_index n = 0;
          while (s.idle.idle(n) == 0) ++n;
          d.where = {{n, 1}};
          d.how = d.plans->front();
          s.idle.set_idle(n, s.idle.idle(n) - 1);
          s.running[100] = s.waiting.extract(100).mapped();
        }
        for (job_id id = 101; id < 104; ++id)
          s.add(id, decoder(1 + 9 * double(r.below(3)), std::int32_t(r.below(2))));
        auto r3 = twin;
        const auto d = p->decide(s.view(), r3);
        std::vector<decision> of_decoders, of_others;
        auto left = bare;
        left.idle = s.idle;
        for (const auto& x : d) {
          if (x.job < 100) {
            of_others.push_back(x);
            continue;
          }
          REQUIRE(of_others.empty());  // decoders come first
          REQUIRE(x.job != 100);
          of_decoders.push_back(x);
          if (x.what != decision::kind::start) continue;
          ++started;
          for (const auto& share : x.where)
            left.idle.set_idle(share.node, left.idle.idle(share.node) - share.gpus);
        }
        auto r4 = twin;
        REQUIRE(same(of_others, alone->decide(left.view(), r4)));
        REQUIRE(r3.state() == r4.state());
        others += of_others.size();
        for (const auto& [id, j] : s.waiting)
          REQUIRE_FALSE(scene_of_policies::why_of(*p, s, id).text.empty());
        CHECK(p->why_waiting(s.view(), 9999).code == reason::kind::unknown);
        carry_out(s, d);  // every start fits
      }
      CHECK(started > 10);
      CHECK(others > 10);
    }
  }
}
