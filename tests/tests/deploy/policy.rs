//! The admission policy: its expressions, evaluated on requests that it allows and refuses.
//!
//! No API server of the tests knows such policies (Kubernetes 1.30), so that the server's part -
//! which requests it asks about, the node's name in the token - is not run.

use anyhow::{Context as _, Result, anyhow, ensure};
use cel::{Context, Program, Value as CelValue};
use flannel_tests::not_run;
use serde_json::{Value, json};

use super::{deploy, documents::Documents, helm};

const POLICY: &str = "ValidatingAdmissionPolicy";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

fn policy() -> Result<Documents> {
    Documents::parse(&std::fs::read_to_string(deploy("admission-policy.yml"))?)
}

/// An update of a Node: the user, the node that the user's token is bound to, and the object before
/// and after.
struct Request {
    user: &'static str,
    node: Option<&'static str>,
    old: Value,
    new: Value,
}

fn node() -> Value {
    json!({
        "metadata": {
            "name": "n1",
            "labels": { "kubernetes.io/hostname": "n1" },
            "annotations": {
                "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
                "node.alpha.kubernetes.io/ttl": "0",
            },
        },
        "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"] },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
            "capacity": { "cpu": "2" },
            "conditions": [
                { "type": "NetworkUnavailable", "status": "True" },
                { "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z" },
            ],
            "nodeInfo": { "kubeletVersion": "v1.30.0" },
        },
    })
}

impl Request {
    /// Of the agent on n1, which changes its Node to what the edit makes of it.
    fn edit(edit: impl FnOnce(&mut Value)) -> Self {
        let mut new = node();
        edit(&mut new);
        Self {
            user: "system:serviceaccount:kube-flannel:flannel",
            node: Some("n1"),
            old: node(),
            new,
        }
    }

    /// The messages of what refuses it; `None` where the policy has no say.
    fn refused_by(&self, policy: &Documents) -> Result<Option<Vec<String>>> {
        let extra = self
            .node
            .map_or(json!({}), |node| json!({ NODE_NAME: [node] }));
        let asked = json!({ "userInfo": { "username": self.user, "extra": extra } });
        let mut context = Context::default();
        for (name, value) in [
            ("object", &self.new),
            ("oldObject", &self.old),
            ("request", &asked),
        ] {
            context
                .add_variable(name, value)
                .map_err(|error| anyhow!("{name}: {error:?}"))?;
        }
        for condition in list(policy, "/spec/matchConditions")? {
            if evaluate(&context, condition)? == CelValue::Bool(false) {
                return Ok(None);
            }
        }
        let mut variables = json!({});
        for variable in list(policy, "/spec/variables")? {
            let value = evaluate(&context, variable)?
                .json()
                .map_err(|error| anyhow!("{variable}: {error:?}"))?;
            variables[variable["name"].as_str().context("a name")?] = value;
        }
        context
            .add_variable("variables", &variables)
            .map_err(|error| anyhow!("{error:?}"))?;
        let mut refused = Vec::new();
        for validation in list(policy, "/spec/validations")? {
            match evaluate(&context, validation)? {
                CelValue::Bool(true) => {}
                CelValue::Bool(false) => refused.push(validation["message"].to_string()),
                other => return Err(anyhow!("{validation}: {other:?}")),
            }
        }
        Ok(Some(refused))
    }
}

fn list<'a>(policy: &'a Documents, pointer: &str) -> Result<&'a Vec<Value>> {
    policy.at(POLICY, pointer)?.as_array().context("a list")
}

fn evaluate(context: &Context<'_, '_>, of: &Value) -> Result<CelValue> {
    let text = of["expression"].as_str().context("an expression")?;
    let program = Program::compile(text).map_err(|error| anyhow!("{text}: {error:?}"))?;
    program
        .execute(context)
        .map_err(|error| anyhow!("{text}: {error:?}"))
}

#[test]
fn the_agent_may_change_its_own_annotations_and_condition() -> Result<()> {
    let policy = policy()?;
    let allowed = [
        Request::edit(|_| ()),
        Request::edit(|node| {
            node["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"] =
                json!("192.0.2.9");
        }),
        Request::edit(|node| {
            node["metadata"]["annotations"]["flannel.alpha.coreos.com/backend-data"] =
                json!("null");
        }),
        Request::edit(|node| {
            node["metadata"]["annotations"] = json!({ "node.alpha.kubernetes.io/ttl": "0" });
        }),
        Request::edit(|node| node["status"]["conditions"][0]["status"] = json!("False")),
        // The first annotations and the first condition of a new Node.
        Request {
            old: json!({ "metadata": { "name": "n1" }, "spec": {}, "status": {} }),
            ..Request::edit(|node| {
                let annotations = json!({ "flannel.alpha.coreos.com/public-ip": "192.0.2.1" });
                let condition = json!({ "type": "NetworkUnavailable", "status": "False" });
                *node = json!({
                    "metadata": { "name": "n1", "annotations": annotations },
                    "spec": {},
                    "status": { "conditions": [condition] },
                });
            })
        },
    ];
    for request in allowed {
        let refused = request
            .refused_by(&policy)?
            .context("the policy has a say")?;
        ensure!(refused.is_empty(), "{refused:?} for {:#}", request.new);
    }
    Ok(())
}

/// The message of a refusal, and the request that gets it.
type Refusal = (&'static str, Request);

const OWN: &str = "flannel changes the Node of the pod that asks, and no other";
const ANNOTATIONS: &str = "of the annotations flannel changes its own";
const FIXED: &str = "flannel changes no labels, finalizers, owners or specification";
const CONDITIONS: &str = "of the conditions flannel changes NetworkUnavailable";
const STATUS: &str = "of the status flannel changes one condition";

/// A request as [`Request::edit`] makes it, refused with this message.
fn refusal(message: &'static str, edit: impl FnOnce(&mut Value)) -> Refusal {
    (message, Request::edit(edit))
}

/// A request with a token of this node, or of none: not of the own one.
fn from_node(node: Option<&'static str>, edit: impl FnOnce(&mut Value)) -> Refusal {
    let request = Request {
        node,
        ..Request::edit(edit)
    };
    (OWN, request)
}

fn remove(from: &mut Value, key: &str) {
    drop(from.as_object_mut().map(|object| object.remove(key)));
}

/// Changes of another node's object, and of annotations.
fn refused_nodes_and_annotations() -> Vec<Refusal> {
    let overwrite = "flannel.alpha.coreos.com/public-ip-overwrite";
    vec![
        // What leads another node's packets astray.
        from_node(Some("m"), |node| {
            node["metadata"]["annotations"][overwrite] = json!("192.0.2.66");
        }),
        from_node(Some("m"), |node| {
            node["status"]["conditions"][0]["status"] = json!("True");
        }),
        // A token without a node: from a Kubernetes before 1.30, or requested by hand.
        from_node(None, |_| ()),
        refusal(ANNOTATIONS, |node| {
            node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] = json!("9");
        }),
        refusal(ANNOTATIONS, |node| {
            node["metadata"]["annotations"]["example.com/a"] = json!("b");
        }),
        refusal(ANNOTATIONS, |node| {
            node["metadata"]["annotations"] =
                json!({ "flannel.alpha.coreos.com/public-ip": "192.0.2.1" });
        }),
    ]
}

/// Changes of the specification, of labels and finalizers, and of others' conditions.
fn refused_fields_and_conditions() -> Vec<Refusal> {
    vec![
        refusal(FIXED, |node| {
            node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
        }),
        refusal(FIXED, |node| {
            node["metadata"]["finalizers"] = json!(["example.com/a"]);
        }),
        refusal(FIXED, |node| node["spec"]["unschedulable"] = json!(true)),
        refusal(CONDITIONS, |node| {
            node["status"]["conditions"][1]["status"] = json!("False");
        }),
        refusal(CONDITIONS, |node| {
            node["status"]["conditions"] =
                json!([{ "type": "NetworkUnavailable", "status": "False" }]);
        }),
    ]
}

/// Changes of the rest of the status, and of metadata that is fixed.
fn refused_status_and_metadata() -> Vec<Refusal> {
    vec![
        refusal(STATUS, |node| {
            node["status"]["addresses"][0]["address"] = json!("192.0.2.66");
        }),
        refusal(STATUS, |node| {
            node["status"]["allocatable"] = json!({ "cpu": "64" });
        }),
        refusal(STATUS, |node| {
            node["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.0.0");
        }),
        refusal(STATUS, |node| remove(&mut node["status"], "capacity")),
        // Fields of Kubernetes 1.30, 1.31 and 1.35, and one that no version has yet.
        refusal(STATUS, |node| {
            node["status"]["features"] = json!({ "supplementalGroupsPolicy": true });
        }),
        refusal(STATUS, |node| {
            node["status"]["runtimeHandlers"] = json!([{ "name": "other" }]);
        }),
        refusal(STATUS, |node| {
            node["status"]["declaredFeatures"] = json!(["x"]);
        }),
        refusal(STATUS, |node| node["status"]["ofALaterVersion"] = json!(1)),
        refusal(FIXED, |node| {
            node["metadata"]["ownerReferences"] = json!([{ "name": "x" }]);
        }),
        refusal(FIXED, |node| remove(&mut node["metadata"], "labels")),
        refusal(FIXED, |node| node["metadata"]["ofALaterVersion"] = json!(1)),
    ]
}

#[test]
fn everything_else_is_refused_to_it() -> Result<()> {
    let policy = policy()?;
    let mut cases = refused_nodes_and_annotations();
    cases.extend(refused_fields_and_conditions());
    cases.extend(refused_status_and_metadata());
    for (message, request) in cases {
        let refused = request
            .refused_by(&policy)?
            .context("the policy has a say")?;
        ensure!(
            refused == [format!("{message:?}")],
            "{refused:?}, not {message:?}, for {:#}",
            request.new
        );
    }
    Ok(())
}

/// The server's type check knows a part of an object: other fields are warnings in
/// `status.typeChecking` of the policy. It has no maps of quantities (`capacity`, `allocatable`).
#[test]
fn no_expression_names_a_field_that_the_type_check_does_not_know() -> Result<()> {
    const KNOWN: [&str; 7] = [
        "metadata",
        "metadata.name",
        "metadata.annotations",
        "spec",
        "status",
        "status.conditions",
        "status.conditions.filter",
    ];
    let policy = policy()?;
    let mut paths = 0;
    for pointer in ["/spec/variables", "/spec/validations"] {
        for expression in list(&policy, pointer)? {
            let text = expression["expression"].as_str().context("an expression")?;
            Program::compile(text).map_err(|error| anyhow!("{text}: {error:?}"))?;
            for path in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')) {
                let Some(path) = path
                    .strip_prefix("object.")
                    .or_else(|| path.strip_prefix("oldObject."))
                else {
                    continue;
                };
                ensure!(KNOWN.contains(&path), "{path} in {text}");
                paths += 1;
            }
        }
    }
    ensure!(paths > 10, "{paths} paths were looked at");
    not_run(
        "the server's own type check of the policy",
        "no kube-apiserver of Kubernetes 1.30 or newer here",
    );
    Ok(())
}

#[test]
fn others_are_not_its_business() -> Result<()> {
    for user in [
        "system:node:n1",
        "kubernetes-admin",
        "system:serviceaccount:default:flannel",
    ] {
        let request = Request {
            user,
            node: None,
            ..Request::edit(|node| node["metadata"]["labels"] = json!({}))
        };
        ensure!(request.refused_by(&policy()?)?.is_none(), "{user}");
    }
    not_run(
        "the admission policy in a server",
        "no kube-apiserver of Kubernetes 1.30 or newer here",
    );
    Ok(())
}

#[test]
fn the_chart_has_the_same_policy() -> Result<()> {
    let by_hand = policy()?;
    let Some(chart) = helm::set("strict")? else {
        return Ok(());
    };
    for kind in [POLICY, "ValidatingAdmissionPolicyBinding"] {
        let (ours, theirs) = (chart.at(kind, "/spec")?, by_hand.at(kind, "/spec")?);
        ensure!(
            ours == theirs,
            "the chart has {ours:#}\nwhere deploy/admission-policy.yml has {theirs:#}"
        );
    }
    let Some(default) = helm::set("default")? else {
        return Ok(());
    };
    ensure!(!default.0.contains_key(POLICY), "it is for who asks for it");
    let Some(upstream) = helm::set("upstream")? else {
        return Ok(());
    };
    ensure!(
        !upstream.0.contains_key(POLICY),
        "nor for who knows only flannel's values"
    );
    Ok(())
}
