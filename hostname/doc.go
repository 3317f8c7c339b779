// Package hostname owns the one form in which host names exist in msb: a Name
// that was normalised once, when it entered the process, and a Pattern over
// such names. Policy rules, DNS questions and answers, SNI, Host headers and
// pins are all parsed into a Name before anything compares them, so that case,
// a trailing dot, full-width letters or another Unicode spelling never make
// two parts of the gateway disagree about which host is meant.
//
// Data flow: text from a policy, a packet or a header goes through Parse (or
// ParsePattern), and from then on only comparable values travel. There is no
// way to make a non-zero Name except through Parse.
//
// What this package does not protect against:
//   - It resolves nothing and knows no addresses. A Name says nothing about
//     where the host is; package dnsguard ties names to addresses.
//   - It doesn't decide that two different names look alike. A Unicode name is
//     shown both ways (Name.Display) and a label that mixes scripts can be
//     recognised (Name.MixedScripts), but "rnicrosoft.com" is a fine name.
//   - It has no opinion on names with a special meaning, such as localhost:
//     those are a matter of policy.
package hostname
