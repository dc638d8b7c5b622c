#include <catch2/catch.hpp>

#include <map>
#include <numeric>
#include <string>

#include "formats/traces/trace.hpp"
#include "harness/files.hpp"

// The importers of published traces, against samples that were counted by hand.

using namespace troupe;
using formats::imported_trace;
using formats::trace_row;
using test::loaded;
using test::temporary;

namespace {

using counts = std::map<std::string, std::size_t>;

imported_trace imported(const std::string& format, const std::string& text,
                        const formats::trace_window& window = {}) {
  return loaded(formats::import_jobs(format, temporary("sample", text), window));
}

std::string refusal(const std::string& format, const std::string& text,
                    const formats::trace_window& window = {}) {
  const auto trace = formats::import_jobs(format, temporary("sample", text), window);
  return trace ? "" : trace.error().text;
}

double gpu_seconds(const imported_trace& t) {
  return std::accumulate(t.rows.begin(), t.rows.end(), 0.0, [](double sum, const trace_row& r) {
    return sum + r.duration_s * r.gpus;
  });
}

// Nine jobs, of which three are left: j1 (two attempts, 60 + 30 s on 2 GPUs), j2 (3,600 s on 8 + 8
// GPUs), j7 (an attempt without a time, then 10 s on 1 GPU).
const char* const philly_log = R"json([
{"status": "Pass", "vc": "v1", "jobid": "j1", "submitted_time": "2017-10-07 01:00:00", "user": "a",
 "attempts": [
  {"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00",
   "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
  {"start_time": "2017-10-07 01:03:00", "end_time": "2017-10-07 01:03:30",
   "detail": [{"ip": "m2", "gpus": ["gpu4", "gpu5"]}]}]},
{"status": "Failed", "vc": "v2", "jobid": "j2", "submitted_time": "2017-10-07 00:59:00",
 "attempts": [{"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:00:00",
  "detail": [
   {"ip": "m1", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu6", "gpu7"]},
   {"ip": "m2", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu6", "gpu7"]}]}]},
{"status": "Killed", "vc": "v1", "jobid": "j3", "submitted_time": "2017-10-07 01:00:00",
 "attempts": []},
{"status": "Failed", "vc": "v1", "jobid": "j4", "submitted_time": "None", "user": "b",
 "attempts": [{"start_time": "None", "end_time": null, "detail": []}]},
{"status": "Pass", "vc": "v1", "jobid": "j5", "submitted_time": "2017-10-07 01:00:00", "user": "b",
 "attempts": [{"start_time": "2017-10-07 01:01:00", "end_time": "None",
               "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
{"status": "Pass", "vc": "v1", "jobid": "j6", "submitted_time": "2017-10-07 01:00:00", "user": "b",
 "attempts": [{"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00",
               "detail": []}]},
{"status": "Pass", "vc": "v1", "jobid": "j7", "submitted_time": "2017-10-07 01:10:00", "user": "c",
 "attempts": [{"start_time": null, "end_time": null, "detail": []},
              {"start_time": "2017-10-07 01:11:00", "end_time": "2017-10-07 01:11:10",
               "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
{"status": "Pass", "vc": "v1", "jobid": "j8", "submitted_time": null, "user": "c",
 "attempts": [{"start_time": "2017-10-07 01:11:00", "end_time": "2017-10-07 01:11:10",
               "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
{"status": "Pass", "vc": "v1", "jobid": "j9", "submitted_time": "2017-10-07 01:12:00", "user": "c",
 "attempts": [{"start_time": "2017-10-07 01:13:00", "end_time": "2017-10-07 01:13:00",
               "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]
)json";

const char* const helios_head =
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
    "queue\n";
const char* const openb_head =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n";

}  // namespace

TEST_CASE("Philly's log in JSON: attempts are added up, and what is left out is counted") {
  const auto t = imported("philly-json", philly_log);
  REQUIRE(t.rows.size() == 3);
  CHECK(t.rows[0] == trace_row{"j2", 0, 3600, 16, "", "", {}, {}, {}, {}});
  CHECK(t.rows[1] == trace_row{"j1", 60, 90, 2, "", "", {}, {}, {}, {}});
  CHECK(t.rows[2] == trace_row{"j7", 660, 10, 1, "", "", {}, {}, {}, {}});
  CHECK(t.left_out == counts{{"never ran", 3},
                             {"still running at the end of the trace", 1},
                             {"without GPUs", 1},
                             {"without a time of submission", 1}});
  CHECK(t.changed == counts{{"attempts without times not counted", 1}});
  CHECK(imported("philly-json", philly_log, {"", 0, "v2"}).rows.size() == 1);
  CHECK(imported("philly-json", philly_log, {"2017-10-07 01:00:00", 0, ""}).rows.size() == 2);
}

TEST_CASE("Helios: jobs without GPUs and those that never ran are left out and counted") {
  const auto t = imported(
      "helios", std::string{helios_head} +
                    "7,ua,vcA,2,8,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:05,"
                    "2020-06-09 18:42:05,60,4\n"
                    "8,ua,vcB,16,64,2,TIMEOUT,2020-06-09 18:40:01,2020-06-09 18:41:01,"
                    "2020-06-09 18:41:31,30,60\n"
                    "9,ub,vcA,0,4,1,COMPLETED,2020-06-09 18:41:02,2020-06-09 18:41:02,"
                    "2020-06-09 19:41:02,3600,0\n"
                    "10,ub,vcA,1,4,1,CANCELLED,2020-06-09 18:41:02,None,2020-06-09 18:41:12,,\n"
                    "11,ub,vcA,8,4,1,FAILED,2020-06-09 18:41:02,2020-06-09 18:41:02,"
                    "2020-06-09 18:41:02,0,0\n");
  REQUIRE(t.rows.size() == 2);
  CHECK(t.rows[0] == trace_row{"helios-8", 0, 30, 16, "", "", {}, {}, {}, {}});
  CHECK(t.rows[1] == trace_row{"helios-7", 60, 60, 2, "", "", {}, {}, {}, {}});
  CHECK(t.left_out == counts{{"never ran", 2}, {"without GPUs", 1}});
}

TEST_CASE("openb: parts of a GPU are rounded up and counted, types named by the catalogue") {
  const auto t = imported("openb", std::string{openb_head} +
                                       "p-0,1,1,1,1000,,LS,Running,0,500,0\n"
                                       "p-1,1,1,1,460,T4,LS,Failed,10,90,20\n"
                                       "p-2,1,1,8,1000,V100M16|V100M32,LS,Succeeded,20,45,25\n"
                                       "p-3,1,1,1,1000,V100M32,BE,Running,30,130,30\n"
                                       "p-4,1,1,0,0,,LS,Running,40,130,40\n"
                                       "p-5,1,1,1,1000,,BE,Pending,50,130,\n"
                                       "p-6,1,1,1,1000,G2,BE,Running,60,,61\n"
                                       "p-7,1,1,2,1000,G2,BE,Running,70,80,71\n");
  REQUIRE(t.rows.size() == 5);
  CHECK(t.rows[1] == trace_row{"p-1", 10, 70, 1, "T4", "", {}, {}, {}, {}});
  CHECK(t.rows[2] == trace_row{"p-2", 20, 20, 8, "", "", {}, {}, {}, {}});
  CHECK(t.rows[3].gpu_type == "V100-32GB");
  CHECK(gpu_seconds(t) == 500 + 70 + 8 * 20 + 100 + 2 * 9);
  CHECK(t.left_out == counts{{"never ran", 1},
                             {"still running at the end of the trace", 1},
                             {"without GPUs", 1}});
  CHECK(t.changed == counts{{"GPU type left open: several, or not disclosed", 2},
                            {"parts of a GPU rounded up to whole ones", 1}});
}

TEST_CASE("PAI: the tasks of a job are one row, with or without the table's header") {
  const std::string rows =
      "a,ps,2.0,Terminated,100.0,400.0,600.0,29.3,,\n"
      "a,worker,3.0,Terminated,110.0,410.0,600.0,29.3,50.0,T4\n"
      "a,chief,1.0,Terminated,105.0,400.0,600.0,29.3,200.0,T4\n"
      "b,tensorflow,4.0,Failed,90.0,95.0,600.0,29.3,100.0,MISC\n"
      "c,tensorflow,1.0,Waiting,,,600.0,29.3,100.0,V100\n"
      "d,tensorflow,1.0,Running,120.0,,600.0,29.3,100.0,V100\n"
      "e,xdl,5.0,Terminated,10.0,20.0,600.0,29.3,,\n";
  const auto t = imported("pai", rows);
  REQUIRE(t.rows.size() == 2);
  CHECK(t.rows[0] == trace_row{"b", 0, 5, 4, "", "", {}, {}, {}, {}});
  CHECK(t.rows[1] == trace_row{"a", 15, 305, 5, "T4", "", {}, {}, {}, {}});
  CHECK(t.left_out == counts{{"never ran", 1},
                             {"still running at the end of the trace", 1},
                             {"without GPUs", 1}});
  CHECK(t.changed == counts{{"GPU type left open: several, or not disclosed", 1},
                            {"parts of a GPU rounded up to whole ones", 1}});
  CHECK(imported("pai",
                 "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,"
                 "plan_gpu,gpu_type\n" +
                     rows)
            .rows == t.rows);
}

TEST_CASE("Sia's and Gavel's workloads have no durations, and their models' own names") {
  const auto sia = imported("sia",
                            "name,time,application,num_replicas,batch_size\n"
                            "cifar10-0,107.5,cifar10,6,2048\nbert-1,100,bert,12,384\n");
  REQUIRE(sia.rows.size() == 2);
  CHECK(sia.rows[0] == trace_row{"bert-1", 0, 0, 12, "", "bert", 384, {}, {}, {}});
  CHECK(sia.rows[1].submit_s == 7.5);
  // A job without a duration has none in Troupe's CSV either.
  const auto file = temporary("again.csv", formats::to_csv(sia.rows));
  CHECK(loaded(formats::load_trace(file)) == sia.rows);

  const trace_row lm{"gavel-1", 0, 0, 2, "", "LM (batch size 5)", {}, 8601, {}, {}};
  for (const auto* line : {"LM (batch size 5)\tpython main.py\t--steps\t8601\t40\t2\n",
                           "LM (batch size 5)\tpython main.py\t--steps\t1\t8601\t40.000000\t2\n",
                           "LM (batch size 5)\tpython main.py\t--steps\t1\t8601\t2\t1\t-1\t40\n",
                           "LM (batch size 5)\tpython main.py\tgpusched/workloads/lm\t--steps\t1\t"
                           "8601\t2\t1\t-1.000000\t40\r\n"}) {
    INFO(line);
    const auto t = imported("gavel", line);
    REQUIRE(t.rows.size() == 1);
    CHECK(t.rows[0] == lm);
  }
}

TEST_CASE("ElasticFlow's workloads keep models, iterations and deadlines") {
  const std::string head =
      "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n";
  const auto t = imported("elasticflow", head + "u-1,3715485,3249,deepspeech2,3716178,32,1,1075\n" +
                                             "u-2,3715500,10,vgg16,,64,4,20\n");
  REQUIRE(t.rows.size() == 2);
  CHECK(t.rows[0] == trace_row{"u-1", 0, 1075, 1, "", "deepspeech2", 32, 3249, 693, {}});
  CHECK(t.rows[1] == trace_row{"u-2", 15, 20, 4, "", "vgg16", 64, 10, {}, {}});
  // The same artifact has both forms of ITP.
  CHECK(imported("itp", head + "u-2,3715500,10,vgg16,,64,4,20\n").rows.size() == 1);
}

TEST_CASE("--skip leaves out rows that never ran where they are refused otherwise") {
  const std::string philly =
      "timestamp,duration,num_gpus,gpu_time,cluster\n"
      "2017-10-03 00:08:00,60,1,60,a\n2017-10-03 00:09:00,0,1,0,a\n2017-10-03 00:10:00,30,0,0,a\n";
  const std::string itp =
      "job_id,submission_time,duration,num_gpu\na,1,5,2\nb,2,0,2\nc,3,7,0\nd,4,1,1\n";
  CHECK(refusal("philly", philly).find(":3: duration: found '0'") != std::string::npos);
  CHECK(refusal("itp", itp).find(":3: duration: found '0'") != std::string::npos);
  const formats::trace_window skip{"", 0, "", true};
  CHECK(imported("philly", philly, skip).rows.size() == 1);
  CHECK(imported("philly", philly, skip).left_out == counts{{"never ran", 2}});
  CHECK(imported("itp", itp, skip).rows.size() == 2);
  CHECK(imported("itp", itp, skip).left_out == counts{{"never ran", 2}});
  // Negative times are no rows that never ran.
  CHECK(imported("itp", itp + "e,5,-5,2\n", skip).left_out ==
        counts{{"never ran", 2}, {"with an unusable duration", 1}});
}

TEST_CASE("malformed rows of published traces are refused with file, line, found and expected") {
  const std::string helios = helios_head, openb = openb_head;
  const std::string attempt =
      R"json({"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 01:00:00",)json"
      R"json( "detail": []})json";
  const std::string sia = "name,time,application,num_replicas,batch_size\n";
  const std::tuple<const char*, std::string, std::string> cases[] = {
      {"philly-json", "{}", ":1: expected a list"},
      {"philly-json", "[3]", ":1: found '3', expected a map with 'jobid'"},
      {"philly-json", "[\n{\"jobid\": \"a\"}]", ":2: found a map, expected a map with 'attempts'"},
      {"philly-json", "[{\"jobid\": \"a\",\n", "not valid JSON"},
      {"philly-json",
       R"json([{"jobid": "a", "vc": "v", "attempts": [],
"submitted_time": "yesterday"}])json",
       ":2: submitted_time: found the text 'yesterday', expected a time"},
      {"philly-json",
       "[{\"jobid\": \"a\", \"vc\": \"v\", \"submitted_time\": null, \"attempts\": [\n" + attempt +
           "]}]",
       ":2: end_time: found '2017-10-07 01:00:00', expected at least start_time"},
      {"philly-json",
       R"json([{"jobid": "a", "vc": "v", "attempts": 4, "submitted_time": null}])json",
       ":1: attempts: found '4', expected a list"},
      {"helios", helios + "1,u,v,1,1,1,FAILED,never,never,never,5,0\n",
       ":2: submit_time: found 'never', expected a time"},
      {"helios", helios + "1,u,v,1.5,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,5,0\n",
       ":2: gpu_num: found '1.5', expected a whole number"},
      {"helios", helios + "1,u,v,1,1,1,FAILED,2020-06-09,2020-06-09,2020-06-09,-5,0\n",
       ":2: duration: found '-5'"},
      {"openb", openb + "p,1,1,1,1000,,LS,Running,0,5,9\n",
       ":2: deletion_time: found 5, expected at least 9 (scheduled_time)"},
      {"openb", openb + "p,1,1,1,2000,,LS,Running,0,5,0\n", ":2: gpu_milli: found '2000'"},
      {"openb", openb + "p,1,1,1,1000,,LS,Running,0,5,0\np,1,1,1,1000,,LS,Running,0,5,0\n",
       ":3: name: found 'p', expected a unique name"},
      {"pai", "a,worker,3.0,Terminated,110.0,10.0,600.0,29.3,50.0,T4\n",
       ":1: end_time: found 10.0, expected at least 110.0"},
      {"pai", "a,worker,3.0,Terminated,110.0\n", ":1: found 5 fields, expected 10"},
      {"sia", sia + "c,1,cifar10,0,2\n", ":2: num_replicas: found '0'"},
      {"sia", sia + "c,1,,1,2\n", ":2: application: found nothing"},
      {"gavel", "LM\tcmd\t--steps\t10\n",
       ":1: found 4 fields between tabs, expected 6, 7, 9 or 10"},
      {"gavel", "LM\tcmd\t--steps\t10.5\t0\t1\n",
       ":1: total steps: found 10.5, expected a whole number"},
      {"gavel", "LM\tcmd\t--steps\t10\tsoon\t1\n", ":1: arrival time: found 'soon'"},
      {"slurm", "", "unknown format 'slurm'"},
  };
  for (const auto& [format, text, words] : cases) {
    const auto why = refusal(format, text);
    INFO(format << ": " << why);
    CHECK(why.find(words) != std::string::npos);
  }
}
