//! Mode `fast` as an operator runs it: agents find the pods, attach the programs and keep what the mode promises.

mod flows;
