package secretproxy

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/msb-project/msb/policies"
)

// extraPEM is what was approved of a file of roots, or what it holds now.
func extraPEM(extra *policies.ExtraCA) ([]byte, error) {
	if extra.PEM != nil {
		return extra.PEM, nil
	}
	return os.ReadFile(extra.File)
}

// CheckFiles reads the files of [tls] extra_ca once: a missing one is an error before anything runs,
// and not a puzzle at the first connection.
func CheckFiles(policy *policies.Policy) error {
	for _, extra := range policy.TLS.ExtraCA {
		pem, err := extraPEM(&extra)
		if err != nil {
			return fmt.Errorf("%w: tls.extra_ca: %w; name a file of certificates in PEM form", errConfig, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w: tls.extra_ca: %s holds no certificate in PEM form", errConfig, extra.File)
		}
	}
	return nil
}
