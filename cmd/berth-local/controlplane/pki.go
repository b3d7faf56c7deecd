package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki holds the keys of a throw-away cluster, and where they are stored.
type pki struct {
	dir     string
	ca      *x509.Certificate
	caKey   *ecdsa.PrivateKey
	caPEM   []byte
	serials int64
}

// validity of certificates: a throw-away cluster does not live longer.
const validity = 365 * 24 * time.Hour

func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	p.caKey = key
	template := p.template(pkix.Name{CommonName: "berth-local"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	if p.ca, err = x509.ParseCertificate(raw); err != nil {
		return nil, fmt.Errorf("parse CA certificate: %w", err)
	}
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return p, p.write("ca.crt", p.caPEM)
}

func (p *pki) template(name pkix.Name) *x509.Certificate {
	p.serials++
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(p.serials), Subject: name, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(name string, content []byte) error {
	if err := os.WriteFile(p.path(name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", p.path(name), err)
	}
	return nil
}

// serving writes name.crt and name.key for the API server.
func (p *pki) serving(name string, serviceIP net.IP) error {
	template := p.template(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), serviceIP}
	cert, key, err := p.sign(template)
	if err != nil {
		return err
	}
	if err := p.write(name+".crt", cert); err != nil {
		return err
	}
	return p.write(name+".key", key)
}

// client returns a client certificate for a user and its group.
func (p *pki) client(user, group string) (cert, key []byte, err error) {
	template := p.template(pkix.Name{CommonName: user, Organization: []string{group}})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return p.sign(template)
}

func (p *pki) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key of %s: %w", template.Subject.CommonName, err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, p.ca, &private.PublicKey, p.caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	key, err = encodeKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), key, err
}

// signingKey writes the key pair of service account tokens.
func (p *pki) signingKey(name string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make service account key: %w", err)
	}
	key, err := encodeKey(private)
	if err != nil {
		return err
	}
	return p.write(name, key)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), nil
}
