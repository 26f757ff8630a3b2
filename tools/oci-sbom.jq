# Lines of dpkg-query (name, version, architecture, source package, its version) to an SPDX 2.3 document, for
# tools/oci-image, which gives the variables. Licences stand in each package's copyright file, in words: NOASSERTION.

def nothing_asserted: {downloadLocation: "NOASSERTION", licenseConcluded: "NOASSERTION", copyrightText: "NOASSERTION",
    filesAnalyzed: false};

"SPDXRef-Image" as $image
| [inputs / "\t"
    | . as [$package, $version, $architecture, $source, $source_version]
    | ($source == "granary") as $own
    | nothing_asserted + {
        SPDXID: "SPDXRef-\($package | gsub("[^A-Za-z0-9.-]"; "-"))",
        name: $package,
        versionInfo: $version,
        supplier: "Organization: \(if $own then "Granary" else "Debian" end)",
        licenseDeclared: (if $own then "Apache-2.0" else "NOASSERTION" end),
        sourceInfo: "built from \($source) \($source_version)",
    }
    + if $own then {} else {externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl",
        referenceLocator: "pkg:deb/debian/\($package | @uri)@\($version | @uri)?arch=\($architecture)&distro=\($release)"}]} end
  ] as $packages
| {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: $name,
    documentNamespace: "https://spdx.org/spdxdocs/\($name)-\($digest | ltrimstr("sha256:"))",
    creationInfo: {created: $created, creators: ["Tool: granary-tools-oci-image"]},
    packages: ([nothing_asserted + {SPDXID: $image, name: "granary", versionInfo: $version, licenseDeclared: "NOASSERTION",
        primaryPackagePurpose: "CONTAINER", checksums: [{algorithm: "SHA256", checksumValue: ($digest | ltrimstr("sha256:"))}]}]
        + $packages),
    relationships: ([{spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: $image}]
        + [$packages[] | {spdxElementId: $image, relationshipType: "CONTAINS", relatedSpdxElement: .SPDXID}]),
}
