// Package review asks of a capture what a policy would have done to it: it rebuilds the flows and gives
// each the verdict of the sessions that the gateway uses, offline.
//
// Data flow:
//
//	capture.Reader ─ frames ─► table of flows ─ SYN, first bytes, datagram ─► session.Session ─► verdicts
//	               ─ DNS questions and answers, name records ─► dnsguard.Replay ─► pins ┘
//
// Two policies can judge side by side. The verdicts that the capture's comments hold are kept beside, so
// that a change shows. A Report is compact (some 100 bytes a flow), so that millions fit into memory.
//
// What a review does not tell:
//   - What depends on the moment: [limits], and what an upstream would have answered. A name that was
//     refused in the capture has no answer in it, so flows to it can't be judged by name.
//   - What is inside TLS, unless the recording gateway looked into it and said in comments which requests it
//     found. Without them a flow that would be inspected is shown as that. The requests of plain HTTP are read
//     out of its bytes.
//   - What the guest would have done under the other policy. It saw the answers of the one it ran under.
//   - The host's own addresses, unless they are given.
package review
