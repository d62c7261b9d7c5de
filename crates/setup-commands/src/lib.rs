//! The commands that prepare a host for the agent, and the one that undoes it: `prepare`,
//! `install`, `docker-opts` and `cleanup`.

pub mod cleanup;
pub mod docker_opts;
pub mod install;
pub mod prepare;
