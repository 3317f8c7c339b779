//go:build linux

package truststore

import (
	"os"
	"path/filepath"
)

// Env returns the variables that make tools read the bundle. Each is
// documented by its tool: OpenSSL, curl, Python's requests, Node, Git, pip,
// cargo, the AWS tools, Deno.
func Env(bundle string) []string {
	if bundle == "" {
		return nil
	}
	names := []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
		"PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
	}
	env := make([]string, len(names))
	for i, n := range names {
		env[i] = n + "=" + bundle
	}
	return env
}

// Bundle is the bundle below root that Install names, "" if there is none.
func Bundle(root string) string {
	for _, name := range bundles {
		if st, err := os.Stat(filepath.Join(root, name)); err == nil && st.Mode().IsRegular() {
			return "/" + name
		}
	}
	return ""
}
