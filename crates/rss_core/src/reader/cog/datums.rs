//! Datums and ellipsoids that GeoKeys name by code: the part of the EPSG dataset that rasters use.
//!
//! A code that is not in these tables makes the CRS unknown; nothing is guessed. The longitudes of all of
//! them are in degrees from Greenwich, and all axes in metres.
//!
//! Codes and values: [EPSG dataset](https://epsg.org); names of datums: as GDAL writes them in WKT 1.

/// An ellipsoid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ellipsoid {
    pub(super) code: u64,
    pub(super) name: &'static str,
    pub(super) semi_major: f64,
    /// Zero for a sphere.
    pub(super) inverse_flattening: f64,
}

/// A datum, and its two-dimensional geographic CRS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datum {
    pub(super) crs: u64,
    pub(super) crs_name: &'static str,
    pub(super) code: u64,
    pub(super) name: &'static str,
    ellipsoid: u64,
}

impl Ellipsoid {
    pub(super) fn of_code(code: u64) -> Option<&'static Self> {
        ELLIPSOIDS.iter().find(|ellipsoid| ellipsoid.code == code)
    }
}

impl Datum {
    pub(super) fn of_code(code: u64) -> Option<&'static Self> {
        DATUMS.iter().find(|datum| datum.code == code)
    }

    /// Returns the datum of a geographic CRS.
    pub(super) fn of_crs(code: u64) -> Option<&'static Self> {
        DATUMS.iter().find(|datum| datum.crs == code)
    }

    pub(super) fn ellipsoid(&self) -> Option<&'static Ellipsoid> {
        Ellipsoid::of_code(self.ellipsoid)
    }
}

const fn ellipsoid(
    code: u64,
    name: &'static str,
    semi_major: f64,
    inverse_flattening: f64,
) -> Ellipsoid {
    Ellipsoid {
        code,
        name,
        semi_major,
        inverse_flattening,
    }
}

const fn datum(
    (crs, crs_name): (u64, &'static str),
    (code, name): (u64, &'static str),
    ellipsoid: u64,
) -> Datum {
    Datum {
        crs,
        crs_name,
        code,
        name,
        ellipsoid,
    }
}

const ELLIPSOIDS: &[Ellipsoid] = &[
    ellipsoid(1024, "CGCS2000", 6_378_137.0, 298.257_222_101),
    ellipsoid(7001, "Airy 1830", 6_377_563.396, 299.324_964_6),
    ellipsoid(7002, "Airy Modified 1849", 6_377_340.189, 299.324_964_6),
    ellipsoid(7003, "Australian National Spheroid", 6_378_160.0, 298.25),
    ellipsoid(7004, "Bessel 1841", 6_377_397.155, 299.152_812_8),
    ellipsoid(7008, "Clarke 1866", 6_378_206.4, 294.978_698_213_898_2),
    ellipsoid(
        7010,
        "Clarke 1880 (Benoit)",
        6_378_300.789,
        293.466_315_538_981_1,
    ),
    ellipsoid(
        7011,
        "Clarke 1880 (IGN)",
        6_378_249.2,
        293.466_021_293_626_9,
    ),
    ellipsoid(7012, "Clarke 1880 (RGS)", 6_378_249.145, 293.465),
    ellipsoid(7013, "Clarke 1880 (Arc)", 6_378_249.145, 293.466_307_7),
    ellipsoid(
        7015,
        "Everest 1830 (1937 Adjustment)",
        6_377_276.345,
        300.801_7,
    ),
    ellipsoid(7019, "GRS 1980", 6_378_137.0, 298.257_222_101),
    ellipsoid(7021, "Indonesian National Spheroid", 6_378_160.0, 298.247),
    ellipsoid(7022, "International 1924", 6_378_388.0, 297.0),
    ellipsoid(7024, "Krassowsky 1940", 6_378_245.0, 298.3),
    ellipsoid(7030, "WGS 84", 6_378_137.0, 298.257_223_563),
    ellipsoid(7035, "Sphere", 6_371_000.0, 0.0),
    ellipsoid(7036, "GRS 1967", 6_378_160.0, 298.247_167_427),
    ellipsoid(7043, "WGS 72", 6_378_135.0, 298.26),
    ellipsoid(7048, "GRS 1980 Authalic Sphere", 6_371_007.0, 0.0),
    ellipsoid(7049, "IAG 1975", 6_378_140.0, 298.257),
    ellipsoid(7050, "GRS 1967 Modified", 6_378_160.0, 298.25),
    ellipsoid(7052, "Clarke 1866 Authalic Sphere", 6_370_997.0, 0.0),
    ellipsoid(7059, "Popular Visualisation Sphere", 6_378_137.0, 0.0),
];

const DATUMS: &[Datum] = &[
    datum((4135, "Old Hawaiian"), (6135, "Old_Hawaiian"), 7008),
    datum((4148, "Hartebeesthoek94"), (6148, "Hartebeesthoek94"), 7030),
    datum((4149, "CH1903"), (6149, "CH1903"), 7004),
    datum(
        (4151, "CHTRS95"),
        (6151, "Swiss_Terrestrial_Reference_System_1995"),
        7019,
    ),
    datum(
        (4156, "S-JTSK"),
        (
            6156,
            "System_of_the_Unified_Trigonometrical_Cadastral_Network",
        ),
        7004,
    ),
    datum((4166, "Korean 1995"), (6166, "Korean_Datum_1995"), 7030),
    datum(
        (4167, "NZGD2000"),
        (6167, "New_Zealand_Geodetic_Datum_2000"),
        7019,
    ),
    datum(
        (4171, "RGF93 v1"),
        (6171, "Reseau_Geodesique_Francais_1993_v1"),
        7019,
    ),
    datum((4179, "Pulkovo 1942(58)"), (6179, "Pulkovo_1942_58"), 7024),
    datum(
        (4202, "AGD66"),
        (6202, "Australian_Geodetic_Datum_1966"),
        7003,
    ),
    datum(
        (4203, "AGD84"),
        (6203, "Australian_Geodetic_Datum_1984"),
        7003,
    ),
    datum((4124, "RT90"), (6124, "Rikets_koordinatsystem_1990"), 7004),
    datum((4207, "Lisbon"), (6207, "Lisbon_1937"), 7022),
    datum((4214, "Beijing 1954"), (6214, "Beijing_1954"), 7024),
    datum((4218, "Bogota 1975"), (6218, "Bogota_1975"), 7022),
    datum((4222, "Cape"), (6222, "Cape"), 7013),
    datum((4230, "ED50"), (6230, "European_Datum_1950"), 7022),
    datum((4231, "ED87"), (6231, "European_Datum_1987"), 7022),
    datum((4237, "HD72"), (6237, "Hungarian_Datum_1972"), 7036),
    datum((4238, "ID74"), (6238, "Indonesian_Datum_1974"), 7021),
    datum((4240, "Indian 1975"), (6240, "Indian_1975"), 7015),
    datum(
        (4248, "PSAD56"),
        (6248, "Provisional_South_American_Datum_1956"),
        7022,
    ),
    datum(
        (4258, "ETRS89"),
        (6258, "European_Terrestrial_Reference_System_1989"),
        7019,
    ),
    datum((4263, "Minna"), (6263, "Minna"), 7012),
    datum((4265, "Monte Mario"), (6265, "Monte_Mario"), 7022),
    datum((4267, "NAD27"), (6267, "North_American_Datum_1927"), 7008),
    datum((4269, "NAD83"), (6269, "North_American_Datum_1983"), 7019),
    datum(
        (4272, "NZGD49"),
        (6272, "New_Zealand_Geodetic_Datum_1949"),
        7022,
    ),
    datum(
        (4277, "OSGB36"),
        (6277, "Ordnance_Survey_of_Great_Britain_1936"),
        7001,
    ),
    datum(
        (4283, "GDA94"),
        (6283, "Geocentric_Datum_of_Australia_1994"),
        7019,
    ),
    datum((4284, "Pulkovo 1942"), (6284, "Pulkovo_1942"), 7024),
    datum((4289, "Amersfoort"), (6289, "Amersfoort"), 7004),
    datum((4301, "Tokyo"), (6301, "Tokyo"), 7004),
    datum((4313, "BD72"), (6313, "Reseau_National_Belge_1972"), 7022),
    datum((4314, "DHDN"), (6314, "Deutsches_Hauptdreiecksnetz"), 7004),
    datum((4322, "WGS 72"), (6322, "World_Geodetic_System_1972"), 7043),
    datum((4326, "WGS 84"), (6326, "WGS_1984"), 7030),
    datum(
        (4490, "China Geodetic Coordinate System 2000"),
        (1043, "China_2000"),
        1024,
    ),
    datum((4555, "New Beijing"), (1045, "New_Beijing"), 7024),
    datum((4610, "Xian 1980"), (6610, "Xian_1980"), 7049),
    datum(
        (4612, "JGD2000"),
        (6612, "Japanese_Geodetic_Datum_2000"),
        7019,
    ),
    datum(
        (4617, "NAD83(CSRS)"),
        (6140, "NAD83_Canadian_Spatial_Reference_System"),
        7019,
    ),
    datum((4618, "SAD69"), (6618, "South_American_Datum_1969"), 7050),
    datum((4619, "SWEREF99"), (6619, "SWEREF99"), 7019),
    datum(
        (4674, "SIRGAS 2000"),
        (
            6674,
            "Sistema_de_Referencia_Geocentrico_para_las_AmericaS_2000",
        ),
        7019,
    ),
    datum(
        (4737, "Korea 2000"),
        (6737, "Geocentric_datum_of_Korea"),
        7019,
    ),
    datum(
        (4759, "NAD83(NSRS2007)"),
        (6759, "NAD83_National_Spatial_Reference_System_2007"),
        7019,
    ),
    datum(
        (6318, "NAD83(2011)"),
        (1116, "NAD83_National_Spatial_Reference_System_2011"),
        7019,
    ),
    datum(
        (6668, "JGD2011"),
        (1128, "Japanese_Geodetic_Datum_2011"),
        7019,
    ),
    datum(
        (6706, "RDN2008"),
        (1132, "Rete_Dinamica_Nazionale_2008"),
        7019,
    ),
    datum(
        (7844, "GDA2020"),
        (1168, "Geocentric_Datum_of_Australia_2020"),
        7019,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datum_has_its_ellipsoid_and_is_listed_once() {
        for datum in DATUMS {
            assert!(datum.ellipsoid().is_some(), "{datum:?}");
            assert_eq!(Datum::of_crs(datum.crs).unwrap().name, datum.name);
            assert_eq!(Datum::of_code(datum.code).unwrap().crs, datum.crs);
        }
    }
}
