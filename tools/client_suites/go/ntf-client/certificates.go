package testservice

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certificateLife = 24 * time.Hour

// TLSMaterial is what a client of an instance needs.
type TLSMaterial struct {
	CAPEM, ClientCertPEM, ClientKeyPEM string
	HandshakeFirst                     bool
}

type certFiles struct{ CAFile, CertFile, KeyFile string }

func makeCertificates(dir string, wanted *tlsSettings) (*TLSMaterial, *certFiles, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	// Named after its instance: one name for two authorities is a fault that TLS libraries report each
	// in their own way.
	ca := template(1, filepath.Base(dir))
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, nil, err
	}
	server := template(2, "localhost")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range wanted.names {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	certPEM, keyPEM, err := sign(server, ca, caKey)
	if err != nil {
		return nil, nil, err
	}
	material := &TLSMaterial{CAPEM: encode("CERTIFICATE", caDER), HandshakeFirst: wanted.handshakeFirst}
	if wanted.mutual {
		client := template(3, "client")
		client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if material.ClientCertPEM, material.ClientKeyPEM, err = sign(client, ca, caKey); err != nil {
			return nil, nil, err
		}
	}
	files := &certFiles{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	return material, files, errors.Join(
		os.WriteFile(files.CAFile, []byte(material.CAPEM), 0o600),
		os.WriteFile(files.CertFile, []byte(certPEM), 0o600),
		os.WriteFile(files.KeyFile, []byte(keyPEM), 0o600))
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func sign(leaf, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (string, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return "", "", err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", keyDER), err
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// TLSConfig is what a client dials an instance with.
func TLSConfig(inst *Instance) (*tls.Config, error) {
	if inst.TLS == nil {
		return nil, errors.New("the instance was made without TLS")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(inst.TLS.CAPEM)) {
		return nil, errors.New("the authority's certificate cannot be read")
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if inst.TLS.ClientCertPEM != "" {
		pair, err := tls.X509KeyPair([]byte(inst.TLS.ClientCertPEM), []byte(inst.TLS.ClientKeyPEM))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
