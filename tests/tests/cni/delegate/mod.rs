//! The CNI plugin before a delegate that records its calls: its input, the treatment of its output,
//! and the files on disk during the call. Also the verbs of CNI 1.1, which the distribution's
//! plugins do not speak.

mod add;
mod check;
mod del;
mod errors;
mod gc;
mod hostile;
mod killed;
mod status;

use anyhow::Result;
use flannel_tests::{
    Lab,
    cni::{Recorder, Runtime, Sandbox, V4},
};
use serde_json::{Value, json};

/// One node with a runtime, the delegate and a sandbox. The sandbox is not a real namespace,
/// because the delegate does not enter it.
struct World {
    runtime: Runtime,
    recorder: Recorder,
    sandbox: Sandbox,
    _lab: Lab,
}

impl World {
    fn new(name: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let runtime = Runtime::new(&lab, "n", Some(V4))?;
        let recorder = Recorder::new(&runtime)?;
        Ok(Self {
            runtime,
            recorder,
            sandbox: sandbox("pod1", "eth0"),
            _lab: lab,
        })
    }

    /// A call that must succeed; what it printed.
    fn ok(&self, verb: &str, conf: &Value) -> Result<String> {
        self.ok_for(verb, &self.sandbox, conf)
    }

    fn ok_for(&self, verb: &str, sandbox: &Sandbox, conf: &Value) -> Result<String> {
        let output = self.runtime.call(verb, Some(sandbox), conf)?;
        anyhow::ensure!(output.code == 0, "{verb}: {output:?}");
        Ok(output.stdout)
    }
}

fn sandbox(id: &str, ifname: &str) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        ifname: ifname.to_owned(),
    }
}

/// The least configuration with this delegate.
fn conf(version: &str) -> Value {
    json!({
        "cniVersion": version, "name": "net", "type": "flannel", "subnetFileWaitSeconds": 0,
        "delegate": { "type": "record" }
    })
}

/// The same with some keys more, or others.
fn conf_with(version: &str, keys: &Value) -> Value {
    let mut conf = conf(version);
    for (key, value) in keys.as_object().expect("an object") {
        conf[key] = value.clone();
    }
    conf
}
