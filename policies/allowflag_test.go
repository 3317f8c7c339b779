package policies

import (
	"strings"
	"testing"
)

func TestParseAllowFlag(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"api.github.com":                                  `hosts=["api.github.com"] cidrs=[] ports=[443] https`,
		"API.github.com.:443":                             `hosts=["api.github.com"] cidrs=[] ports=[443] https`,
		"*.example.com:8443/https":                        `hosts=["*.example.com"] cidrs=[] ports=[8443] https`,
		"git.example.com:22":                              `hosts=["git.example.com"] cidrs=[] ports=[22] tcp`,
		"a.example:80":                                    `hosts=["a.example"] cidrs=[] ports=[80] http`,
		"a.example/http":                                  `hosts=["a.example"] cidrs=[] ports=[80] http`,
		"ntp.example.com:123/udp":                         `hosts=["ntp.example.com"] cidrs=[] ports=[123] udp`,
		"a.example:1-65535/tcp":                           `hosts=["a.example"] cidrs=[] ports=["1-65535"] tcp`,
		"8.8.8.8:443":                                     `hosts=[] cidrs=["8.8.8.8/32"] ports=[443] tcp`,
		"8.8.8.0/24:5000-5099/tcp":                        `hosts=[] cidrs=["8.8.8.0/24"] ports=["5000-5099"] tcp`,
		"[2606:4700::1]:443/https":                        `hosts=[] cidrs=["2606:4700::1/128"] ports=[443] https`,
		"[2606:4700::/32]:443":                            `hosts=[] cidrs=["2606:4700::/32"] ports=[443] tcp`,
		"2606:4700::1/icmp":                               `hosts=[] cidrs=["2606:4700::1/128"] ports=[] icmp`,
		"8.8.8.8/icmp":                                    `hosts=[] cidrs=["8.8.8.8/32"] ports=[] icmp`,
		"10.20.0.5:5432/tcp+private":                      `hosts=[] cidrs=["10.20.0.5/32"] ports=[5432] tcp private`,
		"[fd00::1]:5/udp+private":                         `hosts=[] cidrs=["fd00::1/128"] ports=[5] udp private`,
		"[::ffff:8.8.8.8]:443":                            `hosts=[] cidrs=["8.8.8.8/32"] ports=[443] tcp`,
		"a.example:443/https+within=10.8.0.0/16,fd00::/8": `hosts=["a.example"] cidrs=[] ports=[443] https within=["10.8.0.0/16", "fd00::/8"]`,
		"a.example+within=10.8.0.5/32":                    `hosts=["a.example"] cidrs=[] ports=[443] https within=["10.8.0.5/32"]`,
		"a.example/any":                                   `hosts=["a.example"] cidrs=[] ports=[] any`,
	} {
		r, err := ParseAllowFlag(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got := "hosts=" + tomlValue(r.Hosts) + " cidrs=" + tomlValue(r.CIDRs) + " ports=" + tomlValue(r.Ports) + " " + r.Protocol.String()
		if r.Private {
			got += " private"
		}
		if len(r.Within) > 0 {
			got += " within=" + tomlValue(r.Within)
		}
		if got != want || r.Name != "--allow "+in {
			t.Errorf("%s: %q\n got %s\nwant %s", in, r.Name, got, want)
		}
		p := Default()
		p.Egress.Allow = []Rule{r}
		if err := validate(p); err != nil {
			t.Errorf("%s: the rule isn't valid: %v", in, err)
		}
	}
}

func TestParseAllowFlagRefuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                       "empty",
		"a.example:":                             "no port after the colon",
		"a.example:https":                        "not a port",
		"a.example:0":                            "not a port",
		"a.example:443/quic":                     "unknown value",
		"a.example:1-500":                        "add /tcp or /https",
		"a.example/tcp":                          "needs ports",
		"https://a.example":                      "--allow",
		"10.0.0.5:5432":                          `write "10.0.0.5:5432/tcp+private"`,
		"127.0.0.1:80":                           "the host itself",
		"169.254.169.254:80":                     "metadata",
		"a.example:443+private":                  "not a port",
		"a.example:443/https+private":            `write "a.example:443/https+within=10.20.0.0/16"`,
		"a.example:443/https+within=":            "not an address range",
		"a.example:443/https+within=10.20.0.5":   "has no length",
		"8.8.8.8:443/tcp+within=10.0.0.0/8":      "there are no hosts",
		"*:443/https+within=10.0.0.0/8":          "anybody can get a name",
		"a.example:443/https+within=127.0.0.0/8": "the host itself",
		"a.example:443/https+within=0.0.0.0/1":   "nearly every",
		"[2606:4700::1:443":                      "bracket",
		"[2606:4700::1]443":                      "bracket",
		"10.0.0.1/8:443":                         "bits set",
		"localhost:80":                           "without a dot",
		"0x7f000001:80":                          "IP address",
		"a.example:53/udp":                       "resolver",
		"8.8.8.8":                                "needs ports",
		"a.example\nx":                           "--allow",
		"0.0.0.0/0:443/tcp+private":              "opens every range",
	} {
		r, err := ParseAllowFlag(in)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--allow") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v; want an error with %q", in, r, err, want)
		}
	}
}
