// Command growth measures how the cost of a judgement grows: with the rules of a policy, and with the length of a
// capture that is reviewed.
//
//	rules      egress.Engine.Decide │ the same rules, read in order until one fits
//	captures   msb review           │ tshark, which lists the conversations of the same file
//
// A reader of lists stands for what packet filters and proxies do with lists of rules. Flows, names and sandboxes
// grow in bench/net, bench/dns and bench/boot, which have what that takes.
//
// It measures neither memory nor what reading a policy file costs.
package main
