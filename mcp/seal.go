package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

const (
	// maxSealed bounds the open questions to persons, over all clients.
	maxSealed = 64
	// maxState bounds what is taken for a requestState, in bytes.
	maxState = 512
)

// errState is for a requestState that this server didn't issue for this call, or that was used.
var errState = errors.New("requestState: it is none of this call, was used, or is too old; make the call again without it")

// seals issue the requestState of questions to persons. A client without a session keeps it, and could forge, replay or
// swap it. Therefore it is encrypted and authenticated with a key of this process, for one call's arguments, and opens
// once.
type seals struct {
	aead cipher.AEAD
	now  func() time.Time

	mu    sync.Mutex
	until map[string]time.Time // by the requests whose state may come back
}

func newSeals() (*seals, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &seals{aead: aead, now: time.Now, until: map[string]time.Time{}}, nil
}

// seal makes the state of a question about the request of that id, valid until the given time. about is what the answer is
// for. It reports false if too many questions are open.
func (k *seals) seal(about []byte, id string, until time.Time) (state string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for old, end := range k.until {
		if !k.now().Before(end) {
			delete(k.until, old)
		}
	}
	if len(k.until) >= maxSealed {
		return "", false
	}
	k.until[id] = until
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(until.Unix())), id...)
	return base64.RawURLEncoding.EncodeToString(k.aead.Seal(nil, nil, plain, about)), true //nolint:gosec // the nonce is random: NewGCMWithRandomNonce adds it
}

// open returns the id of a state's request. It works once.
func (k *seals) open(about []byte, state string) (id string, err error) {
	if len(state) > maxState {
		return "", errState
	}
	sealed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		return "", errState
	}
	plain, err := k.aead.Open(nil, nil, sealed, about)
	if err != nil || len(plain) < 8 {
		return "", errState
	}
	until, id := time.Unix(int64(binary.BigEndian.Uint64(plain)), 0), string(plain[8:])
	k.mu.Lock()
	defer k.mu.Unlock()
	_, unused := k.until[id]
	delete(k.until, id)
	if !unused || !k.now().Before(until) {
		return "", errState
	}
	return id, nil
}
