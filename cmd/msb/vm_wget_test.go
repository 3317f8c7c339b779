//go:build vmtest

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func TestVMBuiltinImagesWgetWorksUnderInspection(t *testing.T) {
	policy, value := tokenForEcho(t)
	const script = `u=https://echo.msb.internal/; cd /tmp
		echo "<file>"; wget -T 20 --header "Authorization: Bearer $TOKEN" $u 2>&1; echo "status $? $(cat index.html)</file>"
		echo "<pipe>"; echo $u | xargs env wget -qO- --header="Authorization: Bearer $TOKEN"; echo "status $?</pipe>"
		echo "<denied>"; wget -qO- --post-data x $u 2>&1; echo "status $?</denied>"
		echo "<refused>"; wget -qO- http://10.9.8.7/ 2>&1; echo "status $?</refused>"
		echo "<unknown>"; SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/none wget -qO- $u 2>&1; echo "status $?</unknown>"
		echo "<ftp>"; wget -q ftp://127.0.0.1:1/x 2>&1; echo "status $?</ftp>"`
	got := vmRun(t, "-q", "--policy", policy, "--", "sh", "-c", script)
	if got.code != 0 || got.err != "" {
		t.Errorf("exit %d, said %q", got.code, got.err)
	}
	sum := sha256.Sum256([]byte("Bearer " + value))
	for name, want := range map[string][]string{
		"file":    {hex.EncodeToString(sum[:]), `"index.html" saved`, "status 0"},
		"pipe":    {hex.EncodeToString(sum[:]), "status 0"},
		"denied":  {"server returned error: HTTP/1.1 403 Forbidden (msb refused it: ", "status 8"},
		"refused": {"wget: dial tcp 10.9.8.7:80: ", "status 4"},
		"unknown": {"signed by unknown authority", "have msb inspect the host", "status 5"},
		"ftp":     {"Connection refused", "status 1"},
	} {
		for _, w := range want {
			if text := section(got.out, name); !strings.Contains(text, w) {
				t.Errorf("%s: want %q in\n%s", name, w, text)
			}
		}
	}
}
