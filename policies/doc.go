// Package policies owns the policy file: what a sandbox is, what it may reach,
// which names are answered, which secrets go where. It turns TOML into plain
// data (Policy), refuses everything it does not understand with the place and
// the remedy, includes presets and other files, and intersects policies
// (Tighten).
//
// Data flow: Load or Parse read a file into a tree (package toml), find the
// line of each key, read the tree into values with every error collected, merge
// the includes, and validate the whole. A *Policy that these functions return
// is complete: defaults are filled in, rules without a protocol have got one,
// and every rule can match something. Encode writes one back.
//
// It is one package of many files because reading, checking, merging, tightening and encoding are all about each key of
// the file: a new key is a change in one place of each, and their tests hold them together.
//
// What this package does not protect against:
//   - It judges nothing. Whether a flow is allowed is package egress's matter,
//     and the ranges that validation calls special-purpose here are a check on
//     the text of a rule, not the floor that is enforced at dial time.
//   - It reads no secret: Source says where a value is, package secretproxy
//     fetches it.
//   - Command and file sources, image references and include paths are trusted
//     as far as the file they stand in. A policy of unknown origin belongs
//     under an operator's floor (Tighten), which also refuses its secrets.
package policies
