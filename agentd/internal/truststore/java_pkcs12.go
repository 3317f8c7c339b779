//go:build linux

package truststore

import (
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"unicode/utf16"
)

// The parts of PKCS #12 (RFC 7292) that a keystore of certificates without a password has, which is what
// runtimes come with since Java 18. Java trusts a certificate there that has the attribute trustedKeyUsage.
type (
	pfx struct {
		Version  int
		AuthSafe contentInfo
		MAC      asn1.RawValue `asn1:"optional"`
	}
	contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue // [0] EXPLICIT
	}
	safeBag struct {
		ID         asn1.ObjectIdentifier
		Value      asn1.RawValue // [0] EXPLICIT
		Attributes []attribute   `asn1:"set"`
	}
	certBag struct {
		ID    asn1.ObjectIdentifier
		Value asn1.RawValue // [0] EXPLICIT
	}
	attribute struct {
		ID    asn1.ObjectIdentifier
		Value asn1.RawValue // SET
	}
)

var (
	oidData            = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509            = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	oidFriendlyName    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 20}
	oidTrustedKeyUsage = asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
	oidAnyUsage        = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
)

func addToPKCS12(have []byte, certs [][]byte) ([]byte, error) {
	var p pfx
	var safe []byte
	var parts []contentInfo //nolint:prealloc // asn1 allocates it
	if rest, err := asn1.Unmarshal(have, &p); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("%w: %w", errJavaStore, err)
	}
	if _, err := asn1.Unmarshal(p.AuthSafe.Content.Bytes, &safe); err != nil {
		return nil, fmt.Errorf("%w: %w", errJavaStore, err)
	}
	if _, err := asn1.Unmarshal(safe, &parts); err != nil {
		return nil, fmt.Errorf("%w: %w", errJavaStore, err)
	}
	var d der
	bags := make([]safeBag, len(certs))
	for i, c := range certs {
		name := fmt.Sprintf("msb-sandbox-ca-%d", i)
		bags[i] = safeBag{
			ID:    oidCertBag,
			Value: d.explicit(certBag{oidX509, d.explicit(c)}),
			Attributes: []attribute{
				{oidFriendlyName, d.set(d.bmp(name))},
				{oidTrustedKeyUsage, d.set(oidAnyUsage)},
			},
		}
	}
	parts = append(parts, contentInfo{oidData, d.explicit(d.marshal(bags))})
	p.AuthSafe.Content = d.explicit(d.marshal(parts))
	// A checksum under a password would be wrong now; Java asks for none.
	out := d.marshal(struct {
		Version  int
		AuthSafe contentInfo
	}{p.Version, p.AuthSafe})
	return out, d.err
}

// der marshals and keeps the first error.
type der struct{ err error }

func (d *der) marshal(v any) []byte {
	b, err := asn1.Marshal(v)
	if d.err == nil {
		d.err = err
	}
	return b
}

func (d *der) explicit(v any) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, IsCompound: true, Bytes: d.marshal(v)}
}

func (d *der) set(v any) asn1.RawValue {
	return asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: d.marshal(v)}
}

func (d *der) bmp(s string) asn1.RawValue {
	var b []byte
	for _, c := range utf16.Encode([]rune(s)) {
		b = binary.BigEndian.AppendUint16(b, c)
	}
	return asn1.RawValue{Tag: asn1.TagBMPString, Bytes: b}
}
