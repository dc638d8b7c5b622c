#include "golden.hpp"

namespace troupe::testing {
namespace {

constexpr address nobody_yet = first_client_address, client_1 = first_client_address + 1;

node_report a_report() {
  node_report r;
  r.incarnation = 7, r.sequence = 300, r.epoch = 2, r.orders = 12, r.journal = 7;
  part_report part;
  part.lease = 5, part.now = part_report::state::failed, part.exit_code = -1;
  part.iterations = 70000, part.peak_bytes = 36.75e9, part.detail = "no python3";
  r.parts = {part};
  return r;
}

stripe a_stripe() {
  stripe s;
  s.epoch = 0x18d6b40a3f000000, s.transfer = 7, s.index = 1, s.count = 8, s.offset = 1 << 20;
  s.from = 7, s.to = 5;
  s.what.what = tensor::kind::gradient;
  s.what.from = {5, 1, 2};
  s.what.to_pipeline = 1, s.what.to_stage = 1;
  s.what.iteration = 3, s.what.microbatch = 4, s.what.bytes = 8 << 20;
  s.what.path = {0, 2, 4, true, 9};
  return s;
}

submit_job a_job() {
  submit_job s;
  s.request = 0x0123456789abcdef;
  s.spec.name = "tiny";
  s.spec.model.name = "gpt2";
  s.spec.model.hidden = 768;
  s.spec.model.layers = 12;
  s.spec.model.heads = 12;
  s.spec.model.sequence = 1024;
  s.spec.model.vocabulary = 50257;
  s.spec.global_batch = 8;
  s.spec.iterations = 1000;
  s.spec.limits.deadline_s = 3600.0;
  s.spec.program.command = {"python3", "train.py"};
  s.spec.program.environment = {{"SEED", "1"}};
  return s;
}

generate a_prompt() {
  generate g;
  g.name = {8, 77, 21, 2};
  g.lease = 5, g.replay = 3;
  g.what.prompt_tokens = 100, g.what.max_tokens = 64, g.what.last_tokens = {50256};
  g.what.how.temperature = 0.75, g.what.how.seed = 1234567;
  g.what.how.bias = {{7, -1.5}};
  return g;
}

generated a_completion() {
  generated g;
  g.name = {8, 77, 21, 2};
  g.lease = 5, g.first = 3;
  g.tokens = {{{464, -0.5}, {{464, -0.5}, {290, -1.25}}}, {{50256, -0.125}, {}}};
  g.finish = generated::ending::stop;
  prefill_place where;
  where.bubbles = true, where.guests = 2, where.promised_s = 0.25, where.prefill_s = 0.125;
  where.transfer_s = 0.0625, where.yields = 1, where.kv_bytes = 786432;
  g.where = where;
  return g;
}

prefill_block a_block() {
  prefill_block b;
  b.what = prefill_block::kind::cache;
  b.name = {7, 5, 4};
  b.guest = 1, b.index = 1, b.blocks = 3, b.first_layer = 6, b.layers = 6;
  b.first = 1, b.count = 1, b.bytes = 262144, b.hash = 0x0102030405060708;
  b.progress.name = b.name, b.progress.guest = 1;
  return b;
}

lease_granted a_lease() {
  lease_granted g;
  g.lease = 5, g.job = 3, g.at_s = 12.5;
  g.how = plan{2, 4, 1, 36.75e9, 1.5, 8.0, {0, 2}, true};
  g.predicted_bytes = 36.75e9, g.iteration_s = 0.25, g.start_s = 30;
  g.parts = {lease_part{1, 7, {0, 1, 2, 3}}, lease_part{4, 9, {0, 1, 2, 3}}};
  return g;
}

}  // namespace

const std::vector<golden_frame>& golden_frames() {
  static const std::vector<golden_frame> all{
      {"hello", nobody_yet, controller_address, hello{"my-tool", 99},
       "95 05 01 ce 80 00 00 00 00 92 a7 6d 79 2d 74 6f 6f 6c 63"},
      {"welcome", controller_address, client_1, welcome{client_1},
       "95 05 02 00 ce 80 00 00 01 91 ce 80 00 00 01"},
      {"credit", client_1, controller_address, credit{256},
       "95 05 04 ce 80 00 00 01 00 91 cd 01 00"},
      {"query_jobs", client_1, controller_address, query_jobs{4242, 0},
       "95 05 0e ce 80 00 00 01 00 92 cd 10 92 00"},
      {"cancel_reply", controller_address, client_1,
       cancel_reply{4243, false, {reason::kind::unknown, "There is no job 9."}},
       "95 05 0d 00 ce 80 00 00 01 93 cd 10 93 c2 92 04 b2 54 68 65 72 65 20 69 73 20 6e 6f "
       "20 6a 6f 62 20 39 2e"},
      {"submit_job", client_1, controller_address, a_job(),
       "95 05 0a ce 80 00 00 01 00 92 cf 01 23 45 67 89 ab cd ef dc 00 12 a4 74 69 6e 79 9f "
       "a4 67 70 74 32 a3 67 70 74 cd 03 00 0c 0c 00 00 cd 04 00 cd c4 51 c3 90 00 c2 c2 c2 "
       "08 cd 03 e8 c0 9b 00 00 00 00 00 00 00 c3 00 90 00 a0 c0 a9 65 66 66 69 63 69 65 6e "
       "74 00 97 c0 cb 40 ac 20 00 00 00 00 00 c0 c0 c0 a0 05 95 01 a0 c2 c0 c0 94 c3 90 c0 "
       "c0 97 92 a7 70 79 74 68 6f 6e 33 a8 74 72 61 69 6e 2e 70 79 81 a4 53 45 45 44 a1 31 "
       "a0 c0 c0 c0 c0 c0 c0 c0 93 c2 c0 c0"},
      {"log_chunk", 5, client_1, log_chunk{4244, 5, 65536, true, {}},
       "95 05 13 05 ce 80 00 00 01 95 cd 10 94 05 ce 00 01 00 00 c3 92 00 a0"},
      {"stripe", 2, 1, a_stripe(),
       "95 05 2c 02 01 98 cf 18 d6 b4 0a 3f 00 00 00 07 01 08 ce 00 10 00 00 07 05 "
       "9a 01 93 05 01 02 01 01 03 04 ce 00 80 00 00 cb 00 00 00 00 00 00 00 00 95 00 02 04 c3 09 "
       "00"},
      {"generate", 8, 7, a_prompt(),
       "95 05 3c 08 07 94 94 08 4d 15 02 05 98 64 40 91 cd c4 50 98 cb 3f e8 00 00 00 00 00 "
       "00 cb 3f f0 00 00 00 00 00 00 00 ce 00 12 d6 87 cb 00 00 00 00 00 00 00 00 cb 00 00 "
       "00 00 00 00 00 00 cb 00 00 00 00 00 00 00 00 91 92 07 cb bf f8 00 00 00 00 00 00 00 "
       "c2 cb 00 00 00 00 00 00 00 00 00 03"},
      {"generated", 7, 8, a_completion(),
       "95 05 3d 07 08 97 94 08 4d 15 02 05 03 92 92 92 cd 01 d0 cb bf e0 00 00 00 00 00 00 "
       "92 92 cd 01 d0 cb bf e0 00 00 00 00 00 00 92 cd 01 22 cb bf f4 00 00 00 00 00 00 92 "
       "92 cd c4 50 cb bf c0 00 00 00 00 00 00 90 01 92 00 a0 9a c3 02 cb 3f d0 00 00 00 00 "
       "00 00 cb 3f c0 00 00 00 00 00 00 cb 3f b0 00 00 00 00 00 00 01 ce 00 0c 00 00 92 00 "
       "a0 cb 00 00 00 00 00 00 00 00 00"},
      {"prefill_block", 5, 7, a_block(),
       "95 05 46 05 07 9c 01 93 07 05 04 01 01 03 06 06 01 01 ce 00 04 00 00 cf 01 02 03 04 "
       "05 06 07 08 9a 93 07 05 04 01 00 cb 00 00 00 00 00 00 00 00 cb 00 00 00 00 00 00 00 "
       "00 00 00 92 00 a0 cb 00 00 00 00 00 00 00 00 00"},
      {"node_report", 5, controller_address, a_report(),
       "95 05 1e 05 00 99 07 cd 01 2c 02 0c 91 96 05 02 ff ce 00 01 11 70 cb 42 21 1c f0 ff "
       "00 00 00 aa 6e 6f 20 70 79 74 68 6f 6e 33 90 07 a0 c2"},
  };
  return all;
}

const std::vector<golden_entry>& golden_entries() {
  static const std::vector<golden_entry> all{
      {"epoch_begun", epoch_begun{2, -0.0, 7, 1},
       "93 04 00 94 02 cb 80 00 00 00 00 00 00 00 07 01"},
      {"lease_granted", a_lease(),
       "93 04 02 99 05 03 cb 40 29 00 00 00 00 00 00 9b 02 04 01 cb 42 21 1c f0 ff 00 00 00 cb "
       "3f f8 00 00 00 00 00 00 cb 40 20 00 00 00 00 00 00 92 00 02 c3 00 00 90 cb 42 21 1c f0 ff "
       "00 00 "
       "00 cb 3f d0 00 00 00 00 00 00 cb 40 3e 00 00 00 00 00 00 c2 92 93 01 07 94 00 01 02 "
       "03 93 04 09 94 00 01 02 03"},
  };
  return all;
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const auto b : bytes) {
    if (!text.empty()) text += ' ';
    text += digits[std::to_integer<unsigned>(b) >> 4];
    text += digits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  unsigned digits = 0, value = 0;
  for (const char c : text) {
    const auto digit = std::string{"0123456789abcdef"}.find(c);
    if (digit == std::string::npos) continue;
    value = value << 4 | static_cast<unsigned>(digit);
    if (++digits % 2 == 0) bytes.push_back(static_cast<std::byte>(value & 255));
  }
  return bytes;
}

}  // namespace troupe::testing
