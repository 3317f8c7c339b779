// Package sigv4 signs AWS requests (Signature Version 4) again with other keys: one whose body's hash the client gives or
// leaves out, and one whose body is signed in chunks. The SDK's signer does it; here is what it doesn't: reading whose
// key a request was signed with, hashing a body within a bound, and framing chunks.
package sigv4
