package pcapgen

import "fmt"

const (
	// SecretValue is the value of the secret of spoken cases. No capture may hold it, and only
	// good.example may be sent it.
	SecretValue = "real-value-of-the-spoken-secret-7d865e959b2466918c9863afca942d0f"
	// SpokenPorts is how many ports the guest of one spoken case connects from, from its GuestPort on.
	SpokenPorts = 40
	// firstSpokenPort and topicPorts give each case ports of its own: tshark reads all captures as one,
	// and would take connections with the same ends for one.
	firstSpokenPort = 20000
	topicPorts      = 4000
)

// Spoken are sessions that a guest of the tests speaks, live, through a real gateway with real servers
// behind it, because they hide inside TLS or need both ends. Each run of review's tests speaks them all;
// no two recordings are the same, so the files are what counts (docs/review.md).
//
// New cases go to the end of their topic, so that the others keep their ports.
func Spoken() []Case {
	var all []Case
	for topic, cases := range [][]Case{spokenTLS(), spokenH2(), spokenHTTP(), spokenSecrets()} {
		for i, c := range cases {
			c.Spoken = true
			c.GuestPort = uint16(firstSpokenPort + topic*topicPorts + i*SpokenPorts)
			all = append(all, c)
		}
		if len(cases)*SpokenPorts > topicPorts {
			panic(fmt.Sprintf("topic %d has %d cases, which is more than it has ports for", topic, len(cases)))
		}
	}
	return all
}

// OtherSite is where other.example is, if it isn't at the address of good.example too.
const OtherSite = "93.184.215.20"

// What spoken cases share. Two names are allowed and inspected; one of them has a secret. Without more,
// each has an address of its own.
const (
	spokenRules = apiRule + `
[[egress.allow]]
name = "other"
hosts = ["other.example"]
ports = [443]
protocol = "https"
methods = ["GET", "POST"]
`
	// passedOn are the same names, but nobody looks into what other.example is sent.
	passedOn = apiRule + `
[[egress.allow]]
name = "other"
hosts = ["other.example"]
ports = [443]
protocol = "tls"
`
	apiRule = `
[[egress.allow]]
name = "api"
hosts = ["good.example"]
ports = [443]
protocol = "https"
methods = ["GET", "POST"]
paths = ["/repos/**"]
`
	spokenSecret = `
[secrets.TOKEN]
from = "command:printf ` + SecretValue + `"
hosts = ["good.example"]
in = ["header:Authorization"]
placeholder = "tok_{24}"
`
)

func twoSites() []string {
	return []string{"good.example. 300 IN A " + good, "other.example. 300 IN A " + OtherSite}
}

// oneAddress is a zone in which both names share an address, as at a large host.
func oneAddress() []string {
	return []string{"good.example. 300 IN A " + good, "other.example. 300 IN A " + good}
}

// Values are the values of all secrets of spoken cases.
func Values() []string { return []string{SecretValue, SecondValue} }
