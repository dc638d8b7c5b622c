#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <vector>

#include "formats/traces/trace.hpp"
#include "harness/files.hpp"

// For every published format, and every kind of row that cannot be used: --skip leaves out that row
// alone and counts it by reason; without it the sentence names the row and the option.

using namespace troupe;
using test::temporary;

namespace {

using counts = std::map<std::string, std::size_t>;

/// A row (or job) that cannot be used, by what is counted.
struct broken {
  const char* row;
  const char* counted;
};

struct format_rows {
  const char* name;
  std::string head;
  std::string first, last;  // good rows, before and after
  std::string between, end;
  std::vector<broken> rows;
};

struct outcome {
  std::size_t rows = 0;
  counts left_out;
  std::string why;
};

outcome import(const std::string& format, const std::string& text, bool skip) {
  const auto file = temporary("trace", text);
  const formats::trace_window window{"", 0, "", skip};
  const auto of = [](const auto& all) {
    return all ? outcome{all->rows.size(), all->left_out, {}} : outcome{0, {}, all.error().text};
  };
  return format == "azure-llm" ? of(formats::import_azure_llm(file, window))
                               : of(formats::import_jobs(format, file, window));
}

/// A job of Philly's list, with one attempt.
std::string philly(const std::string& id, const std::string& submitted, const std::string& start,
                   const std::string& end, const std::string& gpus = R"(["gpu0"])") {
  return R"({"status": "Pass", "vc": "v", "jobid": ")" + id + R"(", "submitted_time": )" +
         submitted + R"(, "attempts": [{"start_time": )" + start + R"(, "end_time": )" + end +
         R"(, "detail": [{"ip": "m", "gpus": )" + gpus + "}]}]}";
}

constexpr const char* early = "ended before they began";
constexpr const char* taken = "with a name that is taken or cannot be one";
constexpr const char* fields = "with missing or surplus fields";

const std::string t7 = R"("2017-10-09 07:00:00")", t8 = R"("2017-10-09 08:00:00")";
const std::string reversed = philly("b", t7, t8, t7), again = philly("a", t7, t7, t8),
                  no_time = philly("b", R"("2017-13-09 07:00:00")", t7, t8),
                  no_name = philly("a b", t7, t7, t8), bad_start = philly("b", t7, "17", t8);

const std::vector<format_rows> all{
    {"philly",
     "timestamp,duration,num_gpus,gpu_time,cluster\n",
     "2017-10-03 00:08:00,60,1,60,a",
     "2017-10-03 00:09:00,60,1,60,a",
     "\n",
     "\n",
     {{"2017-10-03 00:08:30,-5,1,60,a", "with an unusable duration"},
      {"2017-10-03 00:08:30,,1,60,a", "with an unusable duration"},
      {"2017-10-03 00:08:30,nan,1,60,a", "with an unusable duration"},
      {"2017-10-03 00:08:30,1e12,1,60,a", "with an unusable duration"},
      {"2017-10-03 00:08:30,60,1.5,60,a", "with an unusable num_gpus"},
      {"2017-10-03 00:08:30,60,many,60,a", "with an unusable num_gpus"},
      {"yesterday,60,1,60,a", "with an unusable timestamp"},
      {"12017-10-03 00:08:30,60,1,60,a", "with an unusable timestamp"},
      {"2017-10-03 00:08:30,60,1", fields},
      {"2017-10-03 00:08:30,60,1,60,a,b", fields}}},
    {"philly-json",
     "[\n",
     again,
     philly("d", t7, t7, t8),
     ",\n",
     "\n]\n",
     {{reversed.c_str(), early},
      {again.c_str(), taken},
      {no_name.c_str(), taken},
      {no_time.c_str(), "with an unusable submitted_time"},
      {bad_start.c_str(), "with an unusable start_time"},
      {R"({"jobid": "b", "vc": "v", "submitted_time": null, "attempts": 4})",
       "with an unusable attempts"},
      {R"({"jobid": "b", "vc": "v", "attempts": []})", fields},
      {"3", fields}}},
    {"itp",
     "job_id,submission_time,duration,num_gpu\n",
     "a,1,5,2",
     "d,4,1,1",
     "\n",
     "\n",
     {{"b,2,-5,2", "with an unusable duration"},
      {"b,2,x,2", "with an unusable duration"},
      {"b,1e11,5,2", "with an unusable submission_time"},
      {"b,-1,5,2", "with an unusable submission_time"},
      {"b,2,5,", "with an unusable num_gpu"},
      {"a,2,5,2", taken},
      {",2,5,2", taken},
      {"b,2,5", fields}}},
    {"elasticflow",
     "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n",
     "a,10,10,vgg16,,64,4,20",
     "d,12,10,vgg16,40,64,4,20",
     "\n",
     "\n",
     {{"b,11,10,vgg16,11,64,4,20", "with a deadline before their submission"},
      {"b,11,10,vgg16,soon,64,4,20", "with an unusable ddl"},
      {"b,11,0,vgg16,,64,4,20", "with an unusable iteration"},
      {"b,11,10,vgg16,,6.4,4,20", "with an unusable batch_size"},
      {"b,11,10,vgg16,,64,4,", "with an unusable duration"},
      {"b,-11,10,vgg16,,64,4,20", "with an unusable submit_time"},
      {"a,11,10,vgg16,,64,4,20", taken},
      {"b,11,10,vgg16", fields}}},
    {"helios",
     "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
     "queue\n",
     "1,u,v,1,1,1,COMPLETED,2020-06-09,2020-06-09,2020-06-09,5,0",
     "4,u,v,1,1,1,COMPLETED,2020-06-10,2020-06-10,2020-06-10,5,0",
     "\n",
     "\n",
     {{"2,u,v,1,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,-5,0", "with an unusable duration"},
      {"2,u,v,1,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,5s,0", "with an unusable duration"},
      {"2,u,v,x,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,5,0", "with an unusable gpu_num"},
      {"2,u,v,1,1,1,FAILED,0000-00-00,2020-06-09,2020-06-09,5,0", "with an unusable submit_time"},
      {"1,u,v,1,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,5,0", taken},
      {"2,u,v,1", fields}}},
    {"pai",
     "",
     "a,worker,2.0,Terminated,100.0,400.0,600,29,100.0,T4",
     "d,worker,1.0,Terminated,1200.0,1500.0,600,29,100.0,T4",
     "\n",
     "\n",
     {{"b,worker,1.0,Failed,500.0,0.0,600,29,100.0,V100", early},
      {"b,worker,1.0,Failed,500.0,499.0,600,29,100.0,V100", early},
      {"b,worker,one,Failed,500.0,600.0,600,29,100.0,V100", "with an unusable inst_num"},
      {"b,worker,1.0,Failed,500.0,600.0,600,29,-100.0,V100", "with an unusable plan_gpu"},
      {"b,worker,1.0,Failed,soon,600.0,600,29,100.0,V100", "with an unusable start_time"},
      {"b,worker,1.0,Failed,500.0,1e11,600,29,100.0,V100", "with an unusable end_time"},
      {"a b,worker,1.0,Failed,500.0,600.0,600,29,100.0,V100", taken},
      {"b,worker,1.0,Failed,500.0", fields}}},
    {"openb",
     "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
     "deletion_time,scheduled_time\n",
     "a,6000,12288,1,1000,,LS,Succeeded,10,500,20",
     "d,6000,12288,2,1000,,BE,Succeeded,100,900,120",
     "\n",
     "\n",
     {{"b,6000,12288,1,1000,,LS,Failed,427061,9902,427061", early},
      {"b,6000,12288,1,2000,,LS,Failed,10,500,20", "with an unusable gpu_milli"},
      {"b,6000,12288,one,1000,,LS,Failed,10,500,20", "with an unusable num_gpu"},
      {"b,6000,12288,1,1000,,LS,Failed,,500,20", "with an unusable creation_time"},
      {"b,6000,12288,1,1000,,LS,Failed,10,1e11,20", "with an unusable deletion_time"},
      {"b,6000,12288,1,1000,,LS,Failed,10,500,-20", "with an unusable scheduled_time"},
      {"a,6000,12288,1,1000,,LS,Failed,10,500,20", taken},
      {"b,6000", fields}}},
    {"sia",
     "name,time,application,num_replicas,batch_size\n",
     "a,1,cifar10,1,2",
     "d,4,cifar10,1,2",
     "\n",
     "\n",
     {{"b,1,,1,2", "with an unusable application"},
      {"b,1,cifar10,0,2", "with an unusable num_replicas"},
      {"b,1,cifar10,1,2.5", "with an unusable batch_size"},
      {"b,1e11,cifar10,1,2", "with an unusable time"},
      {"a,1,cifar10,1,2", taken},
      {"b,1,cifar10", fields}}},
    {"gavel",
     "",
     "LM\tcmd\t--steps\t10\t0\t1",
     "LM\tcmd\t--steps\t10\t5\t1",
     "\n",
     "\n",
     {{"LM\tcmd\t--steps\t10.5\t1\t1", "with an unusable total steps"},
      {"LM\tcmd\t--steps\tten\t1\t1", "with an unusable total steps"},
      {"LM\tcmd\t--steps\t10\tsoon\t1", "with an unusable arrival time"},
      {"LM\tcmd\t--steps\t10\t1\t0", "with an unusable scale factor"},
      {"\tcmd\t--steps\t10\t1\t1", "with an unusable job type"},
      {"LM\tcmd\t--steps\t10", fields}}},
    {"azure-llm",
     "TIMESTAMP,ContextTokens,GeneratedTokens\n",
     "2024-05-10 00:00:00,2162,5",
     "2024-05-10 00:00:01,2162,5",
     "\n",
     "\n",
     {{"2024-05-10 00:00:00+99:00,1,1", "with an unusable TIMESTAMP"},
      {"2024-05-10 00:00:00,-1,1", "with an unusable ContextTokens"},
      {"2024-05-10 00:00:00,1,1.5", "with an unusable GeneratedTokens"},
      {"2024-05-10 00:00:00,1", fields}}},
};

}  // namespace

TEST_CASE("the table of unusable rows has every published format") {
  std::vector<std::string> here, there = formats::job_trace_formats();
  there.emplace_back("azure-llm");
  for (const auto& f : all) here.emplace_back(f.name);
  CHECK(here == there);
}

TEST_CASE("one unusable row of a published trace never stops an import with --skip") {
  for (const auto& f : all) {
    std::string worst = f.head + f.first;
    counts every;
    for (const auto& b : f.rows) {
      INFO(f.name << ": " << b.row);
      const auto text = f.head + f.first + f.between + b.row + f.between + f.last + f.end;
      const auto skipped = import(f.name, text, true);
      CHECK(skipped.why == "");
      CHECK(skipped.rows == 2);
      CHECK(skipped.left_out == counts{{b.counted, 1}});
      // All of them together, too.
      worst += f.between + b.row;
      ++every[b.counted];
    }
    INFO(f.name);
    const auto together = import(f.name, worst + f.between + f.last + f.end, true);
    CHECK(together.rows == 2);
    // A job of several rows is left out with each of its unusable ones.
    CHECK(together.left_out == every);
  }
}

TEST_CASE("without --skip an unusable row of a published trace is named, and so is the option") {
  for (const auto& f : all)
    for (const auto& b : f.rows) {
      const auto text = f.head + f.first + f.between + b.row + f.between + f.last + f.end;
      const auto why = import(f.name, text, false).why;
      INFO(f.name << ": " << b.row << ": " << why);
      const auto line = f.head.empty() ? 2 : 3;
      const bool has_line = why.find(":" + std::to_string(line) + ": ") != std::string::npos;
      // A job of PAI has many rows: it is named itself.
      CHECK((has_line || why.find("job_name: found 'a b'") != std::string::npos));
      CHECK(why.find("; --skip leaves out rows that cannot be used") != std::string::npos);
    }
}

TEST_CASE("a job of PAI with an unusable task is left out as a whole") {
  const std::string rows =
      "a,worker,2.0,Terminated,100.0,400.0,600,29,100.0,T4\n"
      "b,worker,1.0,Terminated,500.0,600.0,600,29,100.0,V100\n"
      "b,worker,1.0,Failed,500.0,0.0,600,29,100.0,V100\n";
  const auto t = import("pai", rows, true);
  CHECK(t.rows == 1);
  CHECK(t.left_out == counts{{early, 1}});
}

TEST_CASE("an unusable row takes no name from a later one, and counts no change") {
  const auto t = import("openb",
                        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
                        "creation_time,deletion_time,scheduled_time\n"
                        "a,1,1,1,500,MISC,LS,Failed,10,5,20\na,1,1,1,1000,,LS,Failed,10,50,20\n",
                        true);
  CHECK(t.rows == 1);
  CHECK(t.left_out == counts{{early, 1}});
}
