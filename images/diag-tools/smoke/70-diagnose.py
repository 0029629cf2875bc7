"""`buildkit diagnose` prints its page, and what it claims is so."""

import json
import os
import subprocess

import smokelib

answer = subprocess.run(["buildkit", "diagnose"], capture_output=True, text=True, timeout=300, check=False)
print(answer.stdout, answer.stderr)
smokelib.require(answer.returncode in (0, 1), f"it ends with {answer.returncode}", "see its words above")
said = subprocess.run(
    ["buildkit", "diagnose", "--json"], capture_output=True, text=True, timeout=300, check=False
).stdout
page = json.loads(said)
lines = {line["name"]: line for line in page["lines"]}
expected, remedy = smokelib.expect(), "mend images/diag-tools/files/diagnose"
smokelib.equal("row", lines["row"]["value"].split()[0], expected["row"]["name"], "rebuild diag-tools")
smokelib.equal("user", lines["user"]["value"].split()[0], "worker", remedy)
smokelib.equal("PID 1", lines["PID 1"]["value"], "tini", remedy)
smokelib.equal("CPUs that nproc says", f"nproc says {len(os.sched_getaffinity(0))};" in lines["usable"]["value"], True,
               remedy)  # fmt: skip
smokelib.equal("/dev/shm", lines["/dev/shm"]["state"], "ok", "start it with --shm-size as the row says")
smokelib.equal("torch", lines["torch"]["state"], "ok", lines["torch"]["value"])
code = page["verdict"]["code"]
if not smokelib.is_cuda():
    smokelib.equal("verdict", code, "no-gpu-wanted", remedy)
    smokelib.equal("exit code", answer.returncode, 0, str([line for line in page["lines"] if line["state"] == "wrong"]))
elif expected["gpu_present"]:
    smokelib.equal("verdict", code, "ok", page["verdict"]["what"] + "; " + page["verdict"]["remedy"])
else:
    known = ("no-gpu", "no-driver", "no-device", "none-asked", "driver-too-old")
    smokelib.require(code in known, f"without a GPU the verdict is {code}", remedy)
